//! What must work: a node goes the whole way, and nobody learns on the way what is not theirs to know.

use std::fs;
use std::path::{Path, PathBuf};

use oneboot_e2e::mcs;
use oneboot_e2e::world::{World, agent_reaches, agent_shows};
use oneboot_node::fixture;
use oneboot_node::node::{Node, paths};
use oneboot_node::process::Line;
use serde_json::Value;

/// From the first fetch to the end, and then the Machine Config Daemon's own question: is it as the full config says?
fn settles(world: &World, node: &Node) {
    let mut agent = node.start_agent().expect("the agent starts");
    let mut kubelet = node.start_kubelet().expect("the kubelet starts");
    agent_reaches(node, &mut agent, "Settled").expect("it settles");
    assert!(
        agent.wait().expect("the agent ends").success(),
        "it hands over to the Machine Config Daemon:\n{}",
        agent.last_lines()
    );
    node.bring_up_network().expect("a CNI configuration");
    kubelet.wait_for(|line| line.contains("node-ready").then_some(())).expect("the Node becomes Ready");

    let state = node.json(paths::STATE).expect("state.json");
    assert_eq!(state["reboots_taken"], 0);
    let full = world.full_config().expect("the full config");
    let current = node.json("etc/machine-config-daemon/currentconfig").expect("currentconfig");
    assert_eq!(current["metadata"]["name"], full["metadata"]["name"]);
    assert_eq!(current["spec"], full["spec"]);
    let file = world.path().join("desired.json");
    fs::write(&file, full.to_string()).expect("writing the full config");
    let verified = node.agent(&["verify", "--desired", file.to_str().expect("UTF-8")]).expect("verify runs");
    assert_eq!(verified.code(), Some(0), "{}{}", verified.stdout, verified.stderr);
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty() && haystack.windows(needle.len()).any(|window| window == needle)
}

/// Every file below `root`, links not followed.
fn all_files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).expect("a folder") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn a_node_settles_and_its_token_is_nowhere() {
    let world = World::with_worker(&[]).expect("a world");
    let node = world.node("worker-1.example").expect("a node");
    let fetched = node.fetch(&world.pointer, &[]).expect("fetch runs");
    assert_eq!(fetched.code(), Some(0), "{}", fetched.stderr);
    assert_eq!(node.lay_down().expect("apply runs").code(), Some(0));
    node.keep_report().expect("a report");
    settles(&world, &node);

    let token = world.token().expect("a token");
    let mut looked = 0;
    for file in all_files(node.root()) {
        let bytes = fs::read(&file).expect("readable");
        assert!(!contains(&bytes, token.as_bytes()), "the token is in {}", file.display());
        looked += 1;
    }
    assert!(looked > 100, "only {looked} files were there to look at");
    for program in ["firstboot", "lay-down", "kubelet", "agent"] {
        for printed in [node.log(program), node.output(program)] {
            let printed = fs::read(printed).expect("a log");
            assert!(!contains(&printed, token.as_bytes()), "the token is in what {program} printed");
        }
    }
    let cluster_log = fs::read(world.path().join("cluster.log")).expect("the cluster's log");
    assert!(!contains(&cluster_log, token.as_bytes()), "the token is in what the control plane printed");
}

#[test]
fn nothing_of_a_post_approved_config_is_in_any_byte_of_the_mcs() {
    let world = World::with_worker(&[]).expect("a world");
    let (token, server) = (world.token().expect("a token"), world.mcs().expect("an address"));
    let bearer = format!("Bearer {token}");
    let texts = fixture::post_only_texts(&fixture::worker_dir()).expect("the customers' MachineConfigs");
    assert!(texts.len() >= 10, "only {} post-approved texts to look for", texts.len());

    let mut bodies = 0;
    for accept in [
        "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1",
        "application/vnd.coreos.ignition+json;version=3.2.0",
    ] {
        let answer =
            mcs::get(&format!("{server}/config/worker"), &[("authorization", &bearer), ("accept", accept)])
                .expect("an answer");
        assert_eq!(answer.status, 200, "{accept}");
        let all = mcs::all_text(&answer.body);
        assert!(all.len() > 48, "only {} texts were opened", all.len());
        for text in &texts {
            for form in text.forms() {
                for opened in &all {
                    assert!(
                        !contains(opened.as_bytes(), &form),
                        "{} is in what the MCS serves for {accept}",
                        text.origin
                    );
                }
            }
        }
        bodies += 1;
    }
    assert_eq!(bodies, 2);
    for path in ["/", "/healthz", "/config/", "/config/worker"] {
        let answer = mcs::get(&format!("{server}{path}"), &[]).expect("an answer");
        assert!(
            answer.body.is_empty() || answer.status >= 400,
            "{path} answers without a token: {} bytes",
            answer.body.len()
        );
        assert!(answer.body.len() < 200, "{path}: {} bytes to somebody without a token", answer.body.len());
    }
}

#[test]
fn the_api_goes_away_and_comes_back() {
    let mut world = World::with_worker(&["--approve", "manual"]).expect("a world");
    let node = world.booted_node("worker-1.example").expect("a booted node");
    let mut kubelet = node.start_kubelet().expect("the kubelet starts");
    let csr = kubelet.wait_for(filed).expect("a CSR");
    world.cluster.admin.command(&["approve", &csr]).expect("approved");
    kubelet.wait_for(|line| line.contains("\"node-registered\"").then_some(())).expect("registered");

    world.cluster.kill();
    let mut agent = node.start_agent().expect("the agent starts");
    let reason = agent_shows(&node, &mut agent, |shown| {
        let reason = shown["reason"].as_str().filter(|reason| !reason.is_empty())?;
        (shown["state"] == "Approved").then(|| reason.to_owned())
    })
    .expect("it says what it is waiting for");
    assert!(reason.contains("refused") || reason.contains("unreachable"), "{reason}");
    world.cluster.restart().expect("the API returns");
    agent_reaches(&node, &mut agent, "Settled").expect("it carries on");
}

/// The name in the kubelet stand-in's line that says a CSR is filed.
fn filed(line: &Line) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    (line["event"] == "csr-filed").then(|| line["detail"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_csr_that_nobody_approves_is_waited_for_and_said() {
    let world = World::with_worker(&["--approve", "manual"]).expect("a world");
    let node = world.booted_node("worker-1.example").expect("a booted node");
    let before = oneboot_e2e::world::configuration(&node).expect("a look");
    let mut agent = node.start_agent().expect("the agent starts");
    let mut kubelet = node.start_kubelet().expect("the kubelet starts");
    let csr = kubelet.wait_for(filed).expect("a CSR");
    let reason = agent_shows(&node, &mut agent, |shown| {
        let reason = shown["reason"].as_str()?;
        (shown["state"] == "Waiting" && reason.contains(&csr)).then(|| reason.to_owned())
    })
    .expect("it says why it waits");
    assert!(reason.contains("pending"), "{reason}");
    // The kubelet writes its own kubeconfig before it has anything to say; nothing else may have changed.
    let after = oneboot_e2e::world::configuration(&node).expect("a look");
    let changes: Vec<String> =
        before.changes(&after).into_iter().filter(|change| !change.starts_with("var/lib/kubelet")).collect();
    assert_eq!(changes, Vec::<String>::new());

    world.cluster.admin.command(&["approve", &csr]).expect("approved");
    agent_reaches(&node, &mut agent, "Settled").expect("it settles once somebody approves");
}

#[test]
fn killing_the_agent_stalls_the_node_and_starting_it_again_finishes() {
    let world = World::with_worker(&["--approve", "manual"]).expect("a world");
    let node = world.booted_node("worker-1.example").expect("a booted node");
    let mut kubelet = node.start_kubelet().expect("the kubelet starts");
    let csr = kubelet.wait_for(filed).expect("a CSR");
    let mut agent = node.start_agent().expect("the agent starts");
    agent_shows(&node, &mut agent, |shown| shown["reason"].as_str()?.contains(&csr).then_some(()))
        .expect("it waits");
    agent.kill();
    world.cluster.admin.command(&["approve", &csr]).expect("approved");
    kubelet.wait_for(|line| line.contains("\"node-registered\"").then_some(())).expect("registered");
    assert!(
        !node.path("etc/machine-config-daemon/currentconfig").exists(),
        "nobody but the agent settles a node"
    );
    let mut agent = node.start_agent().expect("the agent starts again");
    agent_reaches(&node, &mut agent, "Settled").expect("it settles");
}

#[test]
fn the_real_rendered_worker_config_settles() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases");
    if !cases.is_dir() {
        // The project's own fixtures stand without the real ones; the other tests here use them.
        eprintln!(
            "no ../shared/cases beside the checkout: the real rendered configs are not there to be tried"
        );
        return;
    }
    let world = World::with_files(
        &[],
        &cases.join("rendered/aws-worker-pre.json"),
        &cases.join("rendered/aws-worker-post.json"),
    )
    .expect("a world with the real configs");
    let node = world.booted_node("worker-1.example").expect("a booted node");
    settles(&world, &node);
}
