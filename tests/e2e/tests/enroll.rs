//! `join = "enroll"`: the agent is approved in the kubelet's place, and the kubelet starts once, on a configured node.

use std::fs;

use oneboot_e2e::world::{World, agent_reaches};
use oneboot_node::node::{Node, paths};

fn enrolling(node: &Node) {
    let folder = node.path("etc/oneboot/agent.d");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("50-enroll.toml"), "join = \"enroll\"\n").expect("a setting");
}

#[test]
fn the_kubelet_starts_once_on_a_settled_node_and_asks_for_nothing() {
    let world = World::with_worker(&[]).expect("a world");
    let node = world.booted_node("worker-1.example").expect("a booted node");
    enrolling(&node);

    // No kubelet yet: request, approval, configuration and hand-over are the agent's alone.
    let mut agent = node.start_agent().expect("the agent starts");
    agent_reaches(&node, &mut agent, "Settled").expect("it settles");
    assert_eq!(node.json(paths::STATE).expect("state.json")["reboots_taken"], 0);
    let full = world.full_config().expect("the full config");
    let current = node.json("etc/machine-config-daemon/currentconfig").expect("currentconfig");
    assert_eq!(current["spec"], full["spec"]);

    let mut kubelet = node.start_kubelet().expect("the kubelet starts");
    node.bring_up_network().expect("a CNI configuration");
    kubelet.wait_for(|line| line.contains("node-ready").then_some(())).expect("the Node becomes Ready");
    let said = fs::read_to_string(node.output("kubelet")).expect("what the kubelet said");
    assert!(said.contains("\"certificate-found\""), "{said}");
    assert!(!said.contains("csr-filed"), "it has its certificate: {said}");
}

#[test]
fn a_settled_enrolled_node_keeps_no_key_but_the_kubelets() {
    let world = World::with_worker(&[]).expect("a world");
    let node = world.booted_node("worker-2.example").expect("a booted node");
    enrolling(&node);
    let mut agent = node.start_agent().expect("the agent starts");
    agent_reaches(&node, &mut agent, "Settled").expect("it settles");

    let pki = node.path("var/lib/kubelet/pki");
    let mut names: Vec<_> = fs::read_dir(&pki)
        .expect("the kubelet's folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 2, "one pem and its link: {names:?}");
    assert_eq!(names[1], "kubelet-client-current.pem");
    for program in ["agent", "lay-down"] {
        for printed in [node.log(program), node.output(program)] {
            let printed = fs::read_to_string(printed).expect("a log");
            assert!(!printed.contains("PRIVATE KEY"), "a key is in what {program} printed");
        }
    }
}
