//! Owns: the two threads of a node that waits: one for the certificate's file, one for what became of the request.
//! Given a tree and the address that firstboot found, it gives [`Notice`]s over a channel.
//! Never: decides; the file alone says that a node is approved.

use std::{io, net::IpAddr, ops::ControlFlow, sync::Arc, sync::mpsc, thread};

use crate::{
    api::session::Session,
    clock::Clock,
    csr::{self, Word},
    identity::{self, Pair},
    nodename, paths,
    root::Root,
    wait,
};

/// What is heard while waiting for approval.
pub enum Notice {
    /// The certificate is there.
    Certified(Box<Pair>),
    /// A file is there, and of no use.
    Unusable(String),
    /// What became of the request.
    Request(Word),
    /// The certificate cannot be waited for.
    Failed(wait::Error),
}

/// Starts both threads. The last notice is [`Notice::Certified`] or [`Notice::Failed`].
pub fn listen(
    root: &Arc<Root>,
    clock: &Arc<dyn Clock>,
    address: Option<IpAddr>,
) -> io::Result<mpsc::Receiver<Notice>> {
    let (notices, heard) = mpsc::channel();
    watch_certificate(root.clone(), clock.clone(), notices.clone())?;
    watch_request(root.clone(), clock.clone(), address, notices)?;
    Ok(heard)
}

fn watch_certificate(
    root: Arc<Root>,
    clock: Arc<dyn Clock>,
    notices: mpsc::Sender<Notice>,
) -> io::Result<()> {
    spawn("certificate", move || {
        let unusable = |why: &identity::PairError| {
            let _ = notices.send(Notice::Unusable(format!("{}: {why}", paths::KUBELET_CLIENT)));
        };
        let last = match wait::certificate(&root, &*clock, unusable) {
            Ok(pair) => Notice::Certified(Box::new(pair)),
            Err(error) => Notice::Failed(error),
        };
        let _ = notices.send(last);
    })
}

fn watch_request(
    root: Arc<Root>,
    clock: Arc<dyn Clock>,
    address: Option<IpAddr>,
    notices: mpsc::Sender<Notice>,
) -> io::Result<()> {
    let load = {
        let root = root.clone();
        move || identity::bootstrap(&root)
    };
    let mut session = Session::new(load, address, clock).as_onlooker();
    spawn("request", move || {
        let name = || nodename::of(&root).ok().flatten();
        csr::observe(&mut session, &name, |word| match notices.send(Notice::Request(word)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()), // approved: nobody asks any more
        });
    })
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}
