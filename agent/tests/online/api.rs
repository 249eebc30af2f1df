//! The API client over real TLS: who it is to the server, whom it trusts, and what it makes of every answer.

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use crate::support::{Answer, Asked, Ca, Line, NODE, Pauses, Server, Tree, forbidden, list, node};
use oneboot_agent::{
    api::{
        error::{ApiError, Failure},
        resource::{MACHINE_CONFIGS, NODES},
        session::{Session, Trouble},
        types::Node,
        watch::{Query, Update, follow},
    },
    clock::Clock,
    identity, paths,
};
use serde_json::{Value, json};

/// A node with its certificate, its session, and the pauses that it takes.
fn member(server: &Server, ca: &Ca) -> (Tree, Session, Arc<Pauses>) {
    let tree = Tree::new();
    tree.kubeconfig(paths::KUBECONFIG, &server.url, &ca.pem, None);
    tree.store_certificate(&server.node_pair(), "kubelet-client-1.pem");
    let pauses = Arc::new(Pauses::default());
    let root = tree.root.clone();
    let clock = pauses.clone();
    let session = Session::new(move || identity::node(&root, clock.wall_seconds()), None, pauses.clone());
    (tree, session, pauses)
}

/// Answers the n-th request with the n-th answer.
fn in_turn(answers: Vec<fn() -> Answer>) -> impl Fn(&Asked) -> Answer + Send + Sync {
    let next = AtomicUsize::new(0);
    move |_| answers[next.fetch_add(1, Ordering::SeqCst)]()
}

fn get(session: &mut Session) -> Result<Value, Trouble> {
    session.attempt(|client| client.get(&NODES, NODE))
}

/// Insists on a Node and returns what it took to get it.
fn insist(session: &mut Session) -> Vec<String> {
    let mut troubles = Vec::new();
    let got: ControlFlow<(), Value> = session.insist(
        |client| client.get(&NODES, NODE),
        |trouble| {
            troubles.push(trouble.to_string());
            ControlFlow::Continue(())
        },
    );
    assert!(matches!(got, ControlFlow::Continue(node) if node["metadata"]["name"] == NODE));
    troubles
}

fn ok() -> Answer {
    Answer::Json(200, node("1", &json!({}), false))
}

#[test]
fn the_nodes_own_certificate_is_what_the_server_sees() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), |_| ok());
    let (_tree, mut session, _) = member(&server, &ca);
    get(&mut session).unwrap();
    let asked = server.wait_for(|_| true);
    assert_eq!(asked.line(), "GET /api/v1/nodes/node-a");
    assert_eq!(asked.user().as_deref(), Some("system:node:node-a"));
    assert_eq!(asked.authorization, None);
}

#[test]
fn the_bootstrap_token_goes_into_the_header_and_nowhere_else() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), |_| list("1", &[]));
    let tree = Tree::new();
    tree.kubeconfig(paths::BOOTSTRAP_KUBECONFIG, &server.url, &ca.pem, Some("t0ken-value"));
    let identity = identity::bootstrap(&tree.root).unwrap();
    assert!(!format!("{identity:?}").contains("t0ken-value"));
    let root = tree.root.clone();
    let mut session = Session::new(move || identity::bootstrap(&root), None, Arc::new(Pauses::default()));
    session.attempt(|client| client.list::<Node>(&Query::by_name(&NODES, NODE))).unwrap();
    let asked = server.wait_for(|_| true);
    assert_eq!(asked.authorization.as_deref(), Some("Bearer t0ken-value"));
    assert_eq!(asked.certificate, None);
    assert!(!asked.target.contains("t0ken"));
}

#[test]
fn a_binding_that_lags_is_named_and_waited_for() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), in_turn(vec![forbidden, forbidden, ok]));
    let (_tree, mut session, pauses) = member(&server, &ca);
    let troubles = insist(&mut session);
    assert_eq!(troubles.len(), 2);
    assert!(troubles[0].starts_with("cannot get nodes/node-a: not allowed (403): "), "{}", troubles[0]);
    assert_eq!(pauses.taken.lock().unwrap().len(), 2);
}

#[test]
fn a_forbidden_configuration_names_verb_resource_and_manifest() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), |_| forbidden());
    let (_tree, mut session, _) = member(&server, &ca);
    let error = session.attempt(|client| client.get_bytes(&MACHINE_CONFIGS, "rendered-infra-1")).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Trouble::Api(ApiError { failure: Failure::Forbidden { .. }, .. })), "{text}");
    assert!(text.contains("get machineconfigs.machineconfiguration.openshift.io/rendered-infra-1"), "{text}");
    assert!(text.contains("agent/manifests/pool.yaml"), "{text}");
}

#[test]
fn a_throttling_server_is_asked_again_when_it_said() {
    let ca = Ca::new("api-ca");
    let throttled = || Answer::Raw(429, vec![("Retry-After", "7".into())], Vec::new());
    let server = Server::start(&ca, Ca::new("client-ca"), in_turn(vec![throttled, ok]));
    let (_tree, mut session, pauses) = member(&server, &ca);
    assert_eq!(insist(&mut session).len(), 1);
    assert_eq!(*pauses.taken.lock().unwrap(), [Duration::from_secs(7)]);
}

#[test]
fn a_dropped_connection_and_a_broken_server_are_tried_again() {
    let ca = Ca::new("api-ca");
    let answers: Vec<fn() -> Answer> = vec![|| Answer::Drop, || Answer::Json(503, json!({})), ok];
    let server = Server::start(&ca, Ca::new("client-ca"), in_turn(answers));
    let (_tree, mut session, pauses) = member(&server, &ca);
    let troubles = insist(&mut session);
    assert!(troubles[0].contains("the API cannot be reached"), "{}", troubles[0]);
    assert!(troubles[1].contains("the API has a problem (503)"), "{}", troubles[1]);
    // Full jitter below 200 and 400 ms.
    let taken = pauses.taken.lock().unwrap();
    assert!(taken[0] <= Duration::from_millis(200) && taken[1] <= Duration::from_millis(400), "{taken:?}");
}

#[test]
fn a_redirect_is_not_followed() {
    let ca = Ca::new("api-ca");
    let elsewhere =
        |_: &Asked| Answer::Raw(302, vec![("Location", "https://127.0.0.1:1/".into())], Vec::new());
    let server = Server::start(&ca, Ca::new("client-ca"), elsewhere);
    let (_tree, mut session, _) = member(&server, &ca);
    let error = get(&mut session).unwrap_err();
    let Trouble::Api(ApiError { failure: Failure::Unexpected { status: 302, .. }, .. }) = error else {
        panic!("{error}")
    };
}

#[test]
fn a_server_of_another_ca_is_not_spoken_to_until_the_kubeconfig_trusts_it() {
    let (old, new) = (Ca::new("old-ca"), Ca::new("new-ca"));
    let server = Server::start(&old, Ca::new("client-ca"), |_| ok());
    let (tree, mut session, _) = member(&server, &old);
    get(&mut session).unwrap();
    server.wait_for(|_| true);

    // The old connection may live on; a new one meets the new certificate.
    server.rotate(&new);
    tree.kubeconfig(paths::KUBECONFIG, &server.url, &Ca::new("third-ca").pem, None);
    let error = get(&mut session).unwrap_err();
    assert!(matches!(error, Trouble::Api(ApiError { failure: Failure::Untrusted(_), .. })), "{error}");
    assert!(server.asked.try_recv().is_err(), "nothing was asked of a server that is not trusted");

    tree.kubeconfig(paths::KUBECONFIG, &server.url, &format!("{}{}", old.pem, new.pem), None);
    get(&mut session).unwrap();
}

#[test]
fn a_rotated_certificate_is_presented_from_then_on() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), |_| ok());
    let (tree, mut session, _) = member(&server, &ca);
    get(&mut session).unwrap();
    let before = server.wait_for(|_| true).certificate;
    tree.store_certificate(&server.node_pair(), "kubelet-client-2.pem");
    get(&mut session).unwrap();
    let after = server.wait_for(|_| true).certificate;
    assert!(before.is_some() && after.is_some());
    assert_ne!(before, after);
}

#[test]
fn the_gap_of_a_rotation_is_nothing_but_a_pause() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), |_| ok());
    let (tree, mut session, _) = member(&server, &ca);
    std::fs::remove_file(tree.path(paths::KUBELET_CLIENT)).unwrap();
    let mut troubles = Vec::new();
    let got: ControlFlow<(), Value> = session.insist(
        |client| client.get(&NODES, NODE),
        |trouble| {
            troubles.push(trouble.to_string());
            tree.store_certificate(&server.node_pair(), "kubelet-client-2.pem");
            ControlFlow::Continue(())
        },
    );
    assert!(got.is_continue());
    assert_eq!(troubles, ["/var/lib/kubelet/pki/kubelet-client-current.pem is not there yet"]);
}

/// What a followed watch has seen, in short.
fn short(update: &Update<Node>) -> String {
    let version = |node: &Node| node.metadata.resource_version.clone();
    match update {
        Update::Listed(nodes) => format!("listed {:?}", nodes.iter().map(version).collect::<Vec<_>>()),
        Update::Changed(node) => format!("changed {}", version(node)),
        Update::Deleted(node) => format!("deleted {}", version(node)),
        Update::Ended => "ended".to_owned(),
    }
}

/// Follows the Node until `last` is seen; returns everything that was seen, and every trouble.
fn followed(session: &mut Session, last: &str) -> (Vec<String>, Vec<String>) {
    let (mut seen, mut troubles) = (Vec::new(), Vec::new());
    follow(
        session,
        &Query::by_name(&NODES, NODE),
        |update| {
            seen.push(short(&update));
            if seen.last().is_some_and(|s| s == last) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
        |trouble| {
            troubles.push(trouble.to_string());
            ControlFlow::Continue(())
        },
    );
    (seen, troubles)
}

/// A server of one Node: lists are answered in turn, watches get the lines prepared for them in turn.
fn watched(
    lists: Vec<(&'static str, Vec<Value>)>,
    watches: Vec<Vec<Line>>,
) -> impl Fn(&Asked) -> Answer + Send + Sync {
    let lists = Mutex::new(lists.into_iter());
    let watches = Mutex::new(watches.into_iter());
    move |asked| {
        if !asked.target.contains("watch=true") {
            let (version, items) = lists.lock().unwrap().next().expect("a list is prepared");
            return list(version, &items);
        }
        let lines = watches.lock().unwrap().next().expect("a watch is prepared");
        let (send, receive) = mpsc::channel();
        for line in lines {
            send.send(line).unwrap();
        }
        Answer::Watch(receive)
    }
}

fn at(version: &str) -> Value {
    node(version, &json!({}), false)
}

#[test]
fn a_watch_starts_at_the_list_and_goes_on_where_it_broke_off() {
    let ca = Ca::new("api-ca");
    let answers = watched(
        vec![("10", vec![at("9")])],
        vec![
            vec![Line::Event("MODIFIED", at("11")), Line::Break],
            vec![Line::Event("BOOKMARK", json!({"metadata": {"resourceVersion": "15"}}))],
            vec![Line::Event("DELETED", at("16"))],
        ],
    );
    let server = Server::start(&ca, Ca::new("client-ca"), answers);
    let (_tree, mut session, _) = member(&server, &ca);
    let (seen, troubles) = followed(&mut session, "deleted 16");
    assert_eq!(seen, ["listed [\"9\"]", "changed 11", "ended", "deleted 16"]);
    assert_eq!(troubles.len(), 1, "{troubles:?}");
    assert!(
        troubles[0].starts_with("cannot watch nodes/node-a: the API cannot be reached"),
        "{}",
        troubles[0]
    );
    let targets: Vec<_> = server.asked.try_iter().map(|asked| asked.target).collect();
    let watch = |version| {
        format!("/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dnode-a&resourceVersion={version}")
    };
    assert_eq!(
        targets,
        [
            "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-a".to_owned(),
            watch("10"),
            watch("11"),
            watch("15")
        ]
    );
}

#[test]
fn a_version_that_is_too_old_means_listing_again_at_once() {
    let ca = Ca::new("api-ca");
    let gone = json!({"kind": "Status", "code": 410, "message": "too old resource version"});
    let answers = watched(
        vec![("10", vec![]), ("50", vec![at("49")])],
        vec![vec![Line::Event("ERROR", gone)], vec![Line::Event("MODIFIED", at("51"))]],
    );
    let server = Server::start(&ca, Ca::new("client-ca"), answers);
    let (_tree, mut session, pauses) = member(&server, &ca);
    let (seen, troubles) = followed(&mut session, "changed 51");
    assert_eq!(seen, ["listed []", "listed [\"49\"]", "changed 51"]);
    assert_eq!(troubles, Vec::<String>::new());
    assert!(pauses.taken.lock().unwrap().is_empty());
}

#[test]
fn a_410_instead_of_a_watch_is_the_same() {
    let ca = Ca::new("api-ca");
    let first = AtomicUsize::new(0);
    let server = Server::start(&ca, Ca::new("client-ca"), move |asked| {
        match (asked.target.contains("watch=true"), first.fetch_add(1, Ordering::SeqCst)) {
            (true, _) => Answer::Json(410, json!({"kind": "Status", "code": 410})),
            (false, 0) => list("10", &[]),
            (false, _) => list("50", &[at("49")]),
        }
    });
    let (_tree, mut session, _) = member(&server, &ca);
    let (seen, troubles) = followed(&mut session, "listed [\"49\"]");
    assert_eq!((seen.len(), troubles.len()), (2, 0));
}

#[test]
fn a_server_that_ends_every_watch_at_once_is_not_asked_in_a_tight_loop() {
    let ca = Ca::new("api-ca");
    let mut watches: Vec<Vec<Line>> = (0..8).map(|_| Vec::new()).collect();
    watches.push(vec![Line::Event("MODIFIED", at("11"))]);
    let server = Server::start(&ca, Ca::new("client-ca"), watched(vec![("10", vec![])], watches));
    let (_tree, mut session, pauses) = member(&server, &ca);
    let (seen, _) = followed(&mut session, "changed 11");
    assert_eq!(seen.iter().filter(|s| *s == "ended").count(), 8);
    // The first end is taken as normal, from then on the schedule of a lost connection holds.
    assert_eq!(pauses.taken.lock().unwrap().len(), 7);
}
