//! Owns: what this agent does to its own Node: the cordon, its two annotations, and the hand-over.
//! Given wishes over a channel it carries them out once the kubelet has registered the Node, in order.
//! Never: holds up the work (all but a hand-over without MCD is best effort), or touches another Node.

use std::{
    ops::ControlFlow,
    sync::mpsc::{self, Receiver, Sender},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    api::{
        client::Patch,
        error::{ApiError, Failure},
        resource::NODES,
        session::{Session, Trouble},
        types::Node,
        watch::{Query, Update, follow},
    },
    desired::{CURRENT_CONFIG, DESIRED_CONFIG, REASON, STATE},
};

/// The state, for `oc get node -o yaml`.
pub const ANNOTATION_STATE: &str = "oneboot.dev/state";
/// Its reason; empty when there is none.
pub const ANNOTATION_REASON: &str = "oneboot.dev/reason";
/// The Node is unschedulable because of this agent: only then may it lift that again. Set in the same patch.
pub const ANNOTATION_CORDONED: &str = "oneboot.dev/cordoned";
/// A settled agent with an MCD beside it has only this annotation left to write. A kubelet registers its Node one to ten
/// seconds after the certificate (facts/trust.md 2.1, step 8); it is not waited for longer.
const LAST_WORD: Duration = Duration::from_secs(15);

/// What is wanted of the Node.
enum Wish {
    /// The kubelet has registered it.
    Appeared(Box<Node>),
    /// The state has changed.
    Say { state: String, reason: String },
    /// There is no more to say.
    HandOver { config: String, mcd_present: bool },
}

/// A thread that looks after the Node.
pub struct Keeper {
    wishes: Sender<Wish>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts looking for the Node, and cordons it when it is there. `watcher` is blocked in a watch until then.
    pub fn start(
        name: String,
        cordon: bool,
        mut session: Session,
        mut watcher: Session,
    ) -> std::io::Result<Self> {
        let (wishes, received) = mpsc::channel();
        let appeared = wishes.clone();
        let its_name = name.clone();
        std::thread::Builder::new().name("node-watch".into()).spawn(move || {
            let node = await_node(&mut watcher, &its_name);
            // Nobody listens any more when the work is done already.
            let _ = appeared.send(Wish::Appeared(Box::new(node)));
        })?;
        let thread = std::thread::Builder::new()
            .name("node-keeper".into())
            .spawn(move || keep(&name, cordon, &mut session, &received))?;
        Ok(Self { wishes, thread })
    }

    /// Has the annotations say this, when it can be done.
    pub fn say(&self, state: &str, reason: &str) {
        let _ = self.wishes.send(Wish::Say { state: state.to_owned(), reason: reason.to_owned() });
    }

    /// Ends the cordon and the annotations as it must be; whoever wants to see that done joins the thread. With an
    /// MCD, what is MCD's is left to it.
    pub fn hand_over(self, config: &str, mcd_present: bool) -> JoinHandle<()> {
        let _ = self.wishes.send(Wish::HandOver { config: config.to_owned(), mcd_present });
        self.thread
    }
}

fn await_node(session: &mut Session, name: &str) -> Node {
    follow(
        session,
        &Query::by_name(&NODES, name),
        |update| match update {
            Update::Listed(nodes) => {
                nodes.into_iter().next().map_or(ControlFlow::Continue(()), ControlFlow::Break)
            }
            Update::Changed(node) => ControlFlow::Break(node),
            Update::Deleted(_) | Update::Ended => ControlFlow::Continue(()),
        },
        |trouble| {
            tracing::debug!(%trouble, "looking for the Node");
            ControlFlow::Continue(())
        },
    )
}

fn keep(name: &str, cordon: bool, session: &mut Session, wishes: &Receiver<Wish>) {
    let mut node: Option<Box<Node>> = None;
    let mut said = (String::new(), String::new());
    while let Ok(wish) = wishes.recv() {
        match wish {
            Wish::Appeared(appeared) => {
                if cordon && !appeared.spec.unschedulable {
                    insist(session, name, &cordoned());
                }
                node = Some(appeared);
                attempt(session, name, &words(&said));
            }
            Wish::Say { state, reason } => {
                said = (state, reason);
                if node.is_some() {
                    attempt(session, name, &words(&said));
                }
            }
            Wish::HandOver { config, mcd_present: true } => {
                let appeared = node.is_some() || appears_within(wishes, LAST_WORD);
                tracing::debug!(appeared, config, "handing over to the machine config daemon");
                if appeared {
                    attempt(session, name, &words(&said));
                }
                return;
            }
            Wish::HandOver { config, mcd_present: false } => {
                if node.is_some() || appears(wishes) {
                    insist(session, name, &words(&said));
                    release(session, name, &config);
                }
                return;
            }
        }
    }
}

fn appears(wishes: &Receiver<Wish>) -> bool {
    wishes.iter().any(|wish| matches!(wish, Wish::Appeared(_)))
}

fn appears_within(wishes: &Receiver<Wish>, limit: Duration) -> bool {
    matches!(wishes.recv_timeout(limit), Ok(Wish::Appeared(_)))
}

/// What MCD would have written, and an end of the cordon if it is ours.
fn release(session: &mut Session, name: &str, config: &str) {
    let settled = json!({"metadata": {"annotations": {
        CURRENT_CONFIG: config, DESIRED_CONFIG: config, STATE: "Done", REASON: "",
    }}});
    insist(session, name, &settled);
    let node: ControlFlow<(), Node> = session.insist(|client| client.get(&NODES, name), go_on_unless_gone);
    let ControlFlow::Continue(node) = node else { return };
    if node.metadata.annotations.contains_key(ANNOTATION_CORDONED) {
        insist(session, name, &uncordoned());
    }
}

/// Unschedulable, and a note that it was us.
pub fn cordoned() -> Value {
    json!({"metadata": {"annotations": {ANNOTATION_CORDONED: "true"}}, "spec": {"unschedulable": true}})
}

/// The opposite of [`cordoned`].
pub fn uncordoned() -> Value {
    json!({"metadata": {"annotations": {ANNOTATION_CORDONED: null}}, "spec": {"unschedulable": null}})
}

fn words((state, reason): &(String, String)) -> Value {
    json!({"metadata": {"annotations": {ANNOTATION_STATE: state, ANNOTATION_REASON: reason}}})
}

/// Once: a word that is lost is repeated by the next one.
fn attempt(session: &mut Session, name: &str, change: &Value) {
    if let Err(trouble) = session.attempt(|client| client.patch(&NODES, name, Patch::Merge, change)) {
        tracing::debug!(%trouble, "annotating the Node");
    }
}

/// Until it is done, or there is no Node to do it to.
fn insist(session: &mut Session, name: &str, change: &Value) {
    let _: ControlFlow<(), ()> =
        session.insist(|client| client.patch(&NODES, name, Patch::Merge, change), go_on_unless_gone);
}

fn go_on_unless_gone(trouble: &Trouble) -> ControlFlow<()> {
    tracing::warn!(%trouble, "cannot change the Node yet");
    match trouble {
        Trouble::Api(ApiError { failure: Failure::NotFound, .. }) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    }
}
