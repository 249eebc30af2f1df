//! Owns: the reason why a node is still waiting: what became of its own certificate request.
//! Given the bootstrap identity's view of the requests it gives one [`Word`] per change.
//! Never: files, approves or decides anything; the certificate's file alone says that a node is approved.

use std::{fmt, ops::ControlFlow};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};

use crate::{
    api::{
        resource::CERTIFICATE_REQUESTS,
        session::{Session, Trouble},
        types::CertificateRequest,
        watch::{Query, Update, follow},
    },
    subject::{self, NODE_PREFIX},
};

/// The signer of kubelets' client certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The server ends a watch after so many seconds. A kubelet gives up on a request after 15 minutes and files another
/// (facts/trust.md 2.2), which a watch by name does not see: looking again every 20 finds it.
const WATCH_SECONDS: u32 = 20 * 60;

/// What became of the node's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The node does not know its own name, so nobody can tell which request is its.
    NoName,
    /// There is none.
    NotFiled {
        /// The node's name.
        node: String,
    },
    /// Nobody has answered.
    Pending {
        /// The request.
        name: String,
        /// When it was filed.
        since: String,
    },
    /// Somebody has approved it; the certificate may not be there yet.
    Approved {
        /// The request.
        name: String,
    },
    /// Somebody has said no, or the signer would not sign.
    Dead {
        /// The request.
        name: String,
        /// `denied` or `failed`.
        how: &'static str,
        /// The condition's reason and message.
        why: String,
    },
    /// The API cannot say.
    Unknown {
        /// Why.
        trouble: String,
    },
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoName => f.write_str(
                "this node has no name yet: its host name is localhost and no KUBELET_NODE_NAME is set for kubelet.service",
            ),
            Self::NotFiled { node } => {
                write!(f, "no certificate request for {NODE_PREFIX}{node} yet: the kubelet has not filed one")
            }
            Self::Pending { name, since } => write!(
                f,
                "certificate request {name} is pending since {since}; to approve: oc adm certificate approve {name}"
            ),
            Self::Approved { name } => {
                write!(f, "certificate request {name} is approved; the kubelet has not stored the certificate yet")
            }
            Self::Dead { name, how, why } => write!(f, "certificate request {name} {how}: {why}"),
            Self::Unknown { trouble } => write!(f, "cannot tell what became of the certificate request: {trouble}"),
        }
    }
}

impl Word {
    /// Whether a new request is needed before anything can happen.
    pub fn is_dead(&self) -> bool {
        matches!(self, Self::Dead { .. })
    }
}

/// What a request's conditions say.
pub fn word(request: &CertificateRequest) -> Word {
    let name = request.metadata.name.clone();
    let holds = |kind: &str| {
        // An absent status counts as True: Denied and Failed were written without one before Kubernetes 1.19.
        request.status.conditions.iter().find(|c| c.kind == kind && c.status != "False")
    };
    for (kind, how) in [("Denied", "was denied"), ("Failed", "failed")] {
        if let Some(condition) = holds(kind) {
            return Word::Dead { name, how, why: explain(&condition.reason, &condition.message) };
        }
    }
    if holds("Approved").is_some() {
        return Word::Approved { name };
    }
    let since = request.metadata.creation_timestamp.clone().unwrap_or_else(|| "an unknown time".to_owned());
    Word::Pending { name, since }
}

/// What an approver wrote, for a line of a log: bounded, without control characters.
fn explain(reason: &str, message: &str) -> String {
    let text: String = [reason, message].join(": ").chars().filter(|c| !c.is_control()).take(300).collect();
    match text.trim_matches([':', ' ']) {
        "" => "no reason was given".to_owned(),
        text => text.to_owned(),
    }
}

/// The node that a request asks a certificate for: whoever filed it, that is the name it would get.
pub fn node_of(request: &CertificateRequest) -> Option<String> {
    let pem = STANDARD.decode(&request.spec.request).ok()?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).ok()?;
    let subject = subject::of_request(&der)?;
    subject.node().filter(|_| request.spec.signer_name == SIGNER).map(ToOwned::to_owned)
}

/// What the node is called, asked again each time: a unit that runs before the kubelet may still be finding it out.
pub type NodeName<'a> = dyn Fn() -> Option<String> + 'a;

/// Finds and follows the node's request. `tell` hears every change and ends it all with [`ControlFlow::Break`].
pub fn observe(session: &mut Session, node: &NodeName<'_>, mut tell: impl FnMut(Word) -> ControlFlow<()>) {
    let mut last = None;
    let mut tell = move |word: Word| {
        if last.as_ref() == Some(&word) {
            return ControlFlow::Continue(());
        }
        last = Some(word.clone());
        tell(word)
    };
    while let ControlFlow::Continue(name) = find(session, node, &mut tell) {
        if by_name(session, &name, &mut tell).is_break() {
            return;
        }
    }
}

type Tell<'a> = dyn FnMut(Word) -> ControlFlow<()> + 'a;

/// Among all of the signer's: waits for one of this node that is not dead. Breaks when nobody wants to hear more.
fn find(session: &mut Session, node: &NodeName<'_>, tell: &mut Tell<'_>) -> ControlFlow<(), String> {
    let query = Query::by_field(&CERTIFICATE_REQUESTS, "spec.signerName", SIGNER).ending_after(WATCH_SECONDS);
    let tell = std::cell::RefCell::new(tell);
    let heard = |word: Word| -> ControlFlow<ControlFlow<(), String>> {
        let alive = match &word {
            Word::Pending { name, .. } | Word::Approved { name } => Some(name.clone()),
            _ => None,
        };
        if (tell.borrow_mut())(word).is_break() {
            return ControlFlow::Break(ControlFlow::Break(()));
        }
        alive.map_or(ControlFlow::Continue(()), |name| ControlFlow::Break(ControlFlow::Continue(name)))
    };
    follow(
        session,
        &query,
        |update: Update<CertificateRequest>| match update {
            Update::Listed(requests) => {
                let Some(node) = node() else { return heard(Word::NoName) };
                let newest = requests
                    .iter()
                    .filter(|request| node_of(request).as_ref() == Some(&node))
                    // RFC 3339 in UTC sorts as text.
                    .max_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
                heard(newest.map_or(Word::NotFiled { node }, word))
            }
            Update::Changed(request) if node_of(&request).is_some_and(|name| Some(name) == node()) => {
                heard(word(&request))
            }
            Update::Changed(_) | Update::Deleted(_) | Update::Ended => ControlFlow::Continue(()),
        },
        |trouble| match heard(unknown(trouble)) {
            ControlFlow::Break(end) => ControlFlow::Break(end),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        },
    )
}

/// One request, until it is dead or gone, or the watch has ended and a newer one may be there.
fn by_name(session: &mut Session, name: &str, tell: &mut Tell<'_>) -> ControlFlow<()> {
    let query = Query::by_name(&CERTIFICATE_REQUESTS, name).ending_after(WATCH_SECONDS);
    let tell = std::cell::RefCell::new(tell);
    let look_again = ControlFlow::Break(ControlFlow::Continue(()));
    let heard = |word: Word| {
        let dead = word.is_dead();
        match (tell.borrow_mut())(word) {
            ControlFlow::Break(()) => ControlFlow::Break(ControlFlow::Break(())),
            ControlFlow::Continue(()) if dead => look_again,
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        }
    };
    follow(
        session,
        &query,
        |update: Update<CertificateRequest>| match update {
            Update::Listed(requests) => requests.first().map_or(look_again, |request| heard(word(request))),
            Update::Changed(request) => heard(word(&request)),
            Update::Deleted(_) | Update::Ended => look_again,
        },
        |trouble| heard(unknown(trouble)),
    )
}

fn unknown(trouble: &Trouble) -> Word {
    Word::Unknown { trouble: trouble.to_string() }
}
