//! The MCS's certificates over ten years: who still gets in with which pointer, and when.

use crate::harness::{Cluster, machine_config, wait_for};
use crate::program::{run, text};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use oneboot_cluster::certs::{Holding, Step, YEAR, first_ca};
use oneboot_cluster::clock::Clock;
use oneboot_cluster::{stamp, tls, tokens};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use tokio::net::TcpStream;

const MCO: &str = "/api/v1/namespaces/openshift-machine-config-operator";
const ACCEPT: &str = "application/vnd.coreos.ignition+json;version=3.5.0";

/// A connection that trusts `ca` and nothing else, and the server's leaf.
async fn connect(cluster: &Cluster, ca: &str) -> Result<(SendRequest<Full<Bytes>>, Vec<u8>), std::io::Error> {
    let connector = tokio_rustls::TlsConnector::from(tls::client(ca, None).unwrap());
    let stream = TcpStream::connect(cluster.read("mcs.address")).await.unwrap();
    let stream = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await?;
    let leaf = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Ok((sender, leaf))
}

async fn status(sender: &mut SendRequest<Full<Bytes>>, token: &str) -> u16 {
    let request = Request::get("/config/worker")
        .header("host", "mcs")
        .header("accept", ACCEPT)
        .header("authorization", format!("Bearer {token}"));
    sender.ready().await.unwrap();
    let answer = sender.send_request(request.body(Full::default()).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    answer.into_body().collect().await.unwrap();
    code
}

/// The leaf that a node with these CAs is served with; it gets its config over that connection.
async fn boots(cluster: &Cluster, ca: &str, token: &str) -> Vec<u8> {
    let (mut sender, leaf) = connect(cluster, ca).await.unwrap();
    assert_eq!(status(&mut sender, token).await, 200);
    leaf
}

async fn refuses_the_server(cluster: &Cluster, ca: &str) {
    let error = connect(cluster, ca).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

fn blocks(pem: &str) -> Vec<String> {
    pem.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect()
}

fn certs(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = run(cluster.dir.path(), &[&["certs"], arguments].concat(), "");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn decoded(value: &Value) -> String {
    String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
}

/// The CAs that a pointer carries.
fn carried(pointer: &Value) -> String {
    let source =
        pointer["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"].as_str().unwrap();
    decoded(&source.rsplit(',').next().unwrap().into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_in_two_steps_shuts_nobody_out_until_the_old_ca_retires() {
    let cluster = Cluster::start().await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    let token = cluster.token(Some("worker")).await;
    let old = cluster.read("mcs-ca.crt");
    let first_leaf = boots(&cluster, &old, &token).await;
    let (mut open, _) = connect(&cluster, &old).await.unwrap();
    assert_eq!(status(&mut open, &token).await, 200);

    // The first step changes what pointers carry, and nothing that is served.
    let said = certs(&cluster, &["rotate"]);
    assert_eq!(said, "pointers carry 2 CAs; the serving certificate is by an older one\n");
    let both = cluster.read("mcs-ca.crt");
    let new = blocks(&both).into_iter().find(|block| !old.contains(block.as_str())).unwrap();
    assert_eq!(blocks(&both).len(), 2);
    assert!(both.contains(&old));
    let pointer: Value = serde_json::from_slice(&run(cluster.dir.path(), &["pointer"], "").stdout).unwrap();
    assert_eq!(carried(&pointer), both);
    assert_eq!(boots(&cluster, &old, &token).await, first_leaf);
    assert_eq!(boots(&cluster, &both, &token).await, first_leaf);
    refuses_the_server(&cluster, &new).await;
    let early = run(cluster.dir.path(), &["certs", "retire"], "");
    assert_eq!(early.status.code(), Some(78), "{}", text(&early.stderr));
    assert!(text(&early.stderr).contains("certs rotate --serving"), "says what to type");
    assert_eq!(cluster.read("mcs-ca.crt"), both, "nothing is changed");

    // The second step: another leaf, by the new CA; the old pointer gets in by what the old CA says of the new one.
    let said = certs(&cluster, &["rotate", "--serving"]);
    assert_eq!(said, "pointers carry 2 CAs; the serving certificate is by the newest of them\n");
    let second_leaf = boots(&cluster, &new, &token).await;
    assert_ne!(second_leaf, first_leaf);
    assert_eq!(boots(&cluster, &old, &token).await, second_leaf);
    assert_eq!(boots(&cluster, &both, &token).await, second_leaf);
    assert_eq!(status(&mut open, &token).await, 200, "a connection from before goes on");

    // The old CA leaves.
    assert!(certs(&cluster, &["retire"]).starts_with("pointers carry 1 CAs"));
    assert_eq!(cluster.read("mcs-ca.crt"), new);
    refuses_the_server(&cluster, &old).await;
    assert_eq!(boots(&cluster, &new, &token).await, second_leaf);
    assert_eq!(status(&mut open, &token).await, 200, "also now");

    // A restart finds all this as it was.
    let cluster = Cluster::at(cluster.stop().await, |_| {}).await;
    assert_eq!(cluster.read("mcs-ca.crt"), new);
    assert_eq!(boots(&cluster, &new, &token).await, second_leaf);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_eight_of_ten_years_it_rotates_by_itself() {
    // The CAs of the story are valid today, so that real clients can judge them.
    let start = OffsetDateTime::now_utc() - 8 * YEAR - Duration::days(31);
    let set = tokio::sync::watch::Sender::new(start);
    let cluster = Cluster::with(|options| {
        options.clock = Clock::set_by(set.subscribe());
        options.no_token = true;
    })
    .await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    let bundle = format!("{MCO}/configmaps?fieldSelector=metadata.name=machine-config-server-ca");
    let serving = format!("{MCO}/secrets?fieldSelector=metadata.name=machine-config-server-tls");
    let endpoint = format!("{MCO}/configmaps?fieldSelector=metadata.name=oneboot-mcs-endpoint");
    let cas = |map: &Value| blocks(map["data"]["ca-bundle.crt"].as_str().unwrap());
    let old = cluster.read("mcs-ca.crt");
    let first_leaf = boots(&cluster, &old, "").await;

    set.send_replace(start + 8 * YEAR);
    let map = wait_for(&cluster.admin, &bundle, |map| cas(map).len() == 2).await;
    assert!(cas(&map).contains(&old));
    assert_eq!(boots(&cluster, &old, "").await, first_leaf, "the serving certificate stays");

    set.send_replace(start + 8 * YEAR + Duration::days(30));
    let leaf = |secret: &Value| {
        CertificateDer::from_pem_slice(decoded(&secret["data"]["tls.crt"]).as_bytes()).unwrap().to_vec()
    };
    let secret = wait_for(&cluster.admin, &serving, |secret| leaf(secret) != first_leaf).await;
    let digest = stamp::sha256(decoded(&secret["data"]["tls.crt"]));
    wait_for(&cluster.admin, &endpoint, |map| map["data"]["serving"] == digest).await;
    let second_leaf = boots(&cluster, &old, "").await;
    assert_eq!(
        second_leaf,
        leaf(&secret),
        "taken up without a restart, and a pointer of ten years ago gets in"
    );

    set.send_replace(start + 10 * YEAR);
    wait_for(&cluster.admin, &bundle, |map| cas(map).len() == 1).await;
    let served = |map: &Value| map["data"]["serving"] != digest;
    wait_for(&cluster.admin, &endpoint, served).await;
    refuses_the_server(&cluster, &old).await;
    assert_eq!(boots(&cluster, &cluster.read("mcs-ca.crt"), "").await, second_leaf);
}

#[test]
fn what_is_due_when() {
    let start = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
    let names = ["mcs.example".to_owned()];
    let mut held = Holding {
        ca: first_ca(start).unwrap(),
        crosses: String::new(),
        bundle: String::new(),
        serving: None,
    };
    let mut steps = Vec::new();
    let mut settle = |held: &mut Holding, names: &[String], now| {
        steps.clear();
        while let Some(step) = held.next(names, now).unwrap() {
            match step {
                Step::Bundle(bundle) => {
                    held.bundle = bundle;
                    steps.push("bundle");
                }
                Step::NewCa { bundle, ca, crosses } => {
                    (held.bundle, held.ca, held.crosses) = (bundle, ca, crosses);
                    steps.push("ca");
                }
                Step::Serving(pair) => {
                    held.serving = Some((pair, names.to_vec()));
                    steps.push("serving");
                }
            }
        }
        steps.clone()
    };
    assert_eq!(settle(&mut held, &names, start), ["bundle", "serving"]);
    let eight = start + 8 * YEAR;
    assert!(settle(&mut held, &names, eight - Duration::SECOND).is_empty());
    assert_eq!(held.wake(eight - Duration::SECOND), eight, "it sleeps until then");
    let renamed = ["other.example".to_owned()];
    assert_eq!(settle(&mut held, &renamed, eight - Duration::SECOND), ["serving"], "another name: at once");
    assert_eq!(
        settle(&mut held, &renamed, eight),
        ["ca", "serving"],
        "the chain gets what the old CA signed"
    );
    assert!(!held.serves_newest());
    let month = eight + Duration::days(30) - Duration::minutes(5); // CAs are backdated by that
    assert!(settle(&mut held, &renamed, month - Duration::SECOND).is_empty(), "the overlap");
    assert_eq!(settle(&mut held, &renamed, month), ["serving"]);
    assert!(held.serves_newest());
    let ten = start + 10 * YEAR;
    assert!(settle(&mut held, &renamed, ten - Duration::SECOND).is_empty());
    assert_eq!(
        settle(&mut held, &renamed, ten),
        ["bundle", "serving"],
        "the old CA goes, and what it signed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn user_data_follows_every_rotation() {
    let cluster = Cluster::start().await;
    let path =
        "/api/v1/namespaces/openshift-machine-api/secrets?fieldSelector=metadata.name=worker-user-data";
    let user_data =
        |secret: &Value| serde_json::from_str::<Value>(&decoded(&secret["data"]["userData"])).unwrap();
    let bearer =
        |pointer: &Value| pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"].clone();
    let first = wait_for(&cluster.admin, path, |_| true).await;
    assert_eq!(decoded(&first["data"]["disableTemplating"]), "true\n");
    assert!(bearer(&user_data(&first)).is_null(), "there is no token yet");
    let wish = |grace| tokens::Wish { pool: None, node: None, ttl: Duration::HOUR, grace };
    for grace in [None, Some(Duration::HOUR)] {
        let token = tokens::issue(&cluster.admin, &wish(grace), OffsetDateTime::now_utc()).await.unwrap();
        let wanted = json!(format!("Bearer {token}"));
        wait_for(&cluster.admin, path, |secret| bearer(&user_data(secret)) == wanted).await;
    }
    certs(&cluster, &["rotate", "--ca"]);
    let both = cluster.read("mcs-ca.crt");
    assert_eq!(blocks(&both).len(), 2);
    let last = wait_for(&cluster.admin, path, |secret| carried(&user_data(secret)) == both).await;
    let printed: Value = serde_json::from_slice(&run(cluster.dir.path(), &["pointer"], "").stdout).unwrap();
    assert_eq!(user_data(&last), printed, "what `pointer` prints");
}
