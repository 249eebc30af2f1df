//! Which spec is served for which `Accept` (facts/mco.md 1.2), and what a config becomes in it.

use crate::harness::{Cluster, machine_config};
use ignition_config::Config;
use oneboot_cluster::mcs::{BuildError, Parts, Version, build, negotiate};
use serde_json::{Value, json};

fn pair(version: Version) -> (u64, u64) {
    (version.major, version.minor)
}

#[test]
fn accept_table() {
    let ignition = "application/vnd.coreos.ignition+json";
    for (accept, wanted) in [
        (String::new(), Some((2, 2))),
        ("*/*".into(), Some((2, 2))),
        (format!("{ignition};version=3.5.0"), Some((3, 5))),
        (format!("{ignition};version=3.2.0, */*;q=0.1"), Some((3, 2))),
        (format!("{ignition}; version=3.1.0"), Some((3, 1))),
        (format!("{ignition};version=3.6.0"), Some((3, 5))),
        (format!("{ignition};version=3.99.0"), Some((3, 5))),
        (format!("{ignition};version=3.6.0-experimental"), Some((3, 5))),
        (format!("{ignition};version=2.2.0"), Some((2, 2))),
        (format!("{ignition};version=2.4.0"), Some((2, 2))),
        (format!("{ignition};version=2.1.0"), None),
        (format!("{ignition};version=4.0.0"), None),
        // Not semver, or quoted: the entry says nothing.
        (format!("{ignition};version=1"), Some((2, 2))),
        (format!("{ignition};version=\"3.2.0\""), Some((2, 2))),
        (ignition.to_owned(), Some((2, 2))),
        // The heaviest entry decides, and among equals the first.
        (format!("{ignition};version=3.1.0;q=0.5, {ignition};version=3.3.0"), Some((3, 3))),
        (format!("{ignition};version=3.1.0, {ignition};version=3.3.0"), Some((3, 1))),
        (format!("*/*, {ignition};version=3.3.0;q=0.2"), Some((3, 3))),
        ("nonsense".into(), Some((2, 2))),
        // No slash in an entry's first part: it is not there at all. A version elsewhere says nothing.
        (format!("nonsense;version=3.1.0, {ignition};version=3.2.0;q=0.1"), Some((3, 2))),
        ("application/json;version=3.1.0".into(), Some((2, 2))),
        (format!("{ignition};q=0.9, {ignition};version=3.0.0;q=0.1"), Some((3, 0))),
        (format!("{ignition};version=4.0.0, {ignition};version=3.5.0;q=0.9"), None), // the first that says one decides
        (format!("{ignition};version=3.0.0"), Some((3, 0))),
    ] {
        assert_eq!(negotiate(Some(&accept)).map(pair), wanted, "Accept: {accept}");
    }
    assert_eq!(negotiate(None).map(pair), Some((2, 2)));
}

fn version(minor: u64) -> Version {
    Version { major: 3, minor }
}

/// What a node is sent for this config, in this spec.
fn sent(config: &Value, version: Version) -> Result<Value, BuildError> {
    let object = |name: &str, config: &Value| json!({"metadata": {"name": name}, "spec": {"config": config, "kernelArguments": ["quiet"]}});
    let (pre, full) = (object("pre", config), object("full", &json!({"ignition": {"version": "3.5.0"}})));
    build(&Parts { pre: &pre, full: &full, kubeconfig: "k", kubelet_ca: None, cloud_ca: None }, version)
}

fn with(pointer: &str, value: Value) -> Value {
    let mut config = json!({"ignition": {"version": "3.5.0"}});
    let mut at = &mut config;
    for step in pointer.split('/') {
        at = &mut at[step];
    }
    *at = value;
    config
}

#[test]
fn a_plain_config_is_said_in_every_spec() {
    // With the empty sections that the operator writes, and keys that say nothing.
    let config = json!({
        "ignition": {"version": "3.5.0", "config": {}, "proxy": {}, "security": {"tls": {}}, "timeouts": {}},
        "kernelArguments": {}, "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"], "shouldExist": true}]},
        "storage": {"luks": [], "files": [{"path": "/etc/a", "mode": 0o644, "contents": {"source": "data:,a"}}]},
        "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Unit]"}]},
    });
    for minor in 0..=5 {
        let sent = sent(&config, version(minor)).unwrap();
        let (_, warnings) = Config::parse_slice(sent.to_string().as_bytes()).unwrap();
        assert!(warnings.is_empty(), "3.{minor}: {warnings:?}");
        assert_eq!(sent["ignition"]["version"], format!("3.{minor}.0"));
        assert_eq!(sent["storage"]["files"][0], config["storage"]["files"][0], "3.{minor}");
        assert_eq!(sent["systemd"], config["systemd"], "3.{minor}");
        assert_eq!(sent["passwd"]["users"][0]["sshAuthorizedKeys"], json!(["k"]), "3.{minor}");
    }
}

#[test]
fn what_an_older_spec_cannot_say_is_refused_by_name() {
    let file = |more: Value| {
        let mut file = json!({"path": "/etc/a"});
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with("storage/files", json!([file]))
    };
    let luks = |more: Value| {
        let mut luks = json!({"name": "l", "device": "/dev/l"});
        luks.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with("storage/luks", json!([luks]))
    };
    for (since, what, config) in [
        (1, "ignition.proxy", with("ignition/proxy", json!({"httpProxy": "http://p"}))),
        (
            1,
            "storage.files.0.contents.httpHeaders",
            file(
                json!({"contents": {"source": "https://h/a", "httpHeaders": [{"name": "a", "value": "b"}]}}),
            ),
        ),
        (
            1,
            "a sha256 verification hash",
            file(json!({"contents": {"source": "data:,", "verification": {"hash": "sha256-e3"}}})),
        ),
        (
            1,
            "storage.filesystems.0.mountOptions",
            with(
                "storage/filesystems",
                json!([{"device": "/dev/a", "format": "xfs", "mountOptions": ["ro"]}]),
            ),
        ),
        (
            2,
            "passwd.users.0.shouldExist",
            with("passwd/users", json!([{"name": "core", "shouldExist": false}])),
        ),
        (2, "a gs:// source", file(json!({"contents": {"source": "gs://bucket/a"}}))),
        (2, "storage.luks", luks(json!({}))),
        (
            2,
            "storage.disks.0.partitions.0.resize",
            with(
                "storage/disks",
                json!([{"device": "/dev/a", "partitions": [{"label": "l", "resize": true}]}]),
            ),
        ),
        (3, "kernelArguments", with("kernelArguments/shouldNotExist", json!(["rhgb"]))),
        (
            3,
            "the filesystem format none",
            with("storage/filesystems", json!([{"device": "/dev/a", "format": "none"}])),
        ),
        (4, "special mode bits", file(json!({"mode": 0o4755}))),
        (4, "an arn: source", file(json!({"contents": {"source": "arn:aws:s3:::b/a"}}))),
        (4, "storage.luks.0.discard", luks(json!({"discard": true}))),
        (4, "storage.luks.0.openOptions", luks(json!({"openOptions": ["x"]}))),
        (5, "storage.luks.0.cex", luks(json!({"cex": {"enabled": true}}))),
    ] {
        assert!(
            sent(&config, version(since)).is_ok(),
            "3.{since} has {what}: {:?}",
            sent(&config, version(since))
        );
        let asked = format!("3.{}.0", since - 1);
        let wanted = BuildError::Inexpressible { asked, what: what.to_owned() };
        assert_eq!(sent(&config, version(since - 1)).unwrap_err(), wanted);
    }
}

#[test]
fn kernel_arguments_move_to_where_an_older_reader_has_them() {
    let config = with("kernelArguments/shouldExist", json!(["a b"]));
    let encapsulated = |sent: &Value| {
        let files = sent["storage"]["files"].as_array().unwrap();
        let source =
            files.last().unwrap()["contents"]["source"].as_str().unwrap().strip_prefix("data:,").unwrap();
        let text = oneboot_cluster::api::percent_decode(source);
        serde_json::from_str::<Value>(&text).unwrap()["spec"]["kernelArguments"].clone()
    };
    let new = sent(&config, version(3)).unwrap();
    assert_eq!(
        (&new["kernelArguments"]["shouldExist"], encapsulated(&new)),
        (&json!(["a b"]), json!(["quiet"]))
    );
    let old = sent(&config, version(2)).unwrap();
    assert!(old.get("kernelArguments").is_none());
    assert_eq!(encapsulated(&old), json!(["quiet", "a b"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_wire() {
    let cluster = Cluster::with(|options| options.no_token = true).await;
    let mut config = machine_config("00-worker", "worker", true, "/etc/a", "a");
    config["spec"]["config"]["storage"]["files"][0]["mode"] = 0o1755.into();
    cluster.apply(&[config]).await.unwrap();
    for (accept, status) in [
        ("application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1", 200),
        ("application/vnd.coreos.ignition+json;version=3.4.0", 200),
        ("application/vnd.coreos.ignition+json;version=3.3.0", 500), // as the real server when it cannot convert
        ("application/vnd.coreos.ignition+json;version=2.2.0", 400), // spec 2 is not spoken here
        ("*/*", 400), // which is what a bare `curl` is taken to want
        ("application/vnd.coreos.ignition+json;version=4.0.0", 400),
    ] {
        let answer = cluster.mcs("GET", "/config/worker", &[("accept", accept)], "").await;
        assert_eq!(answer.status, status, "{accept}");
        assert_eq!(answer.body.is_empty(), status != 200, "{accept}");
    }
}
