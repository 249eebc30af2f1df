//! The token gate: every row of design 5 "Token", over the wire and in the table.

use crate::harness::{Cluster, IGNITION_3_5, machine_config};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use oneboot_cluster::clock::Clock;
use oneboot_cluster::tokens::{Presented, Record, Verdict, Wish, issue, judge};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

const SECRET: &str = "/api/v1/namespaces/openshift-config/secrets/machineconfig-auth";

async fn with_worker_config() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    cluster
}

/// Moves the end of every stored token.
async fn end_all_at(cluster: &Cluster, end: &str) {
    let mut secret = cluster.admin.get(SECRET).await.unwrap();
    let text = STANDARD.decode(secret["data"]["tokens.json"].as_str().unwrap()).unwrap();
    let mut records: Value = serde_json::from_slice(&text).unwrap();
    for record in records.as_array_mut().unwrap() {
        record["not_after"] = end.into();
    }
    secret["data"]["tokens.json"] = STANDARD.encode(records.to_string()).into();
    cluster.admin.put(SECRET, &secret).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_row_by_row() {
    let cluster = with_worker_config().await;
    let worker = cluster.token(Some("worker")).await;
    let master = cluster.token(Some("master")).await;
    let every = cluster.token(None).await;
    let bearer = |token: &str| format!("Bearer {token}");
    let (good, other) = (bearer(&worker), bearer(&master));
    let encoded = worker.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let unknown = bearer(&STANDARD.encode([7; 32]));
    let query = format!("/config/worker?token={encoded}");
    let twice = format!("/config/worker?token={encoded}&token={encoded}");
    for (what, path, authorization, status) in [
        ("no token", "/config/worker", vec![], 401),
        ("an empty token", "/config/worker", vec!["Bearer "], 401),
        ("another scheme", "/config/worker", vec!["Basic d29ya2VyOnB3"], 401),
        ("characters that no token has", "/config/worker", vec!["Bearer a\"b"], 401),
        ("an unknown token", "/config/worker", vec![unknown.as_str()], 401),
        ("two headers", "/config/worker", vec![good.as_str(), good.as_str()], 401),
        ("the query twice", &twice, vec![], 401),
        ("header and query", &query, vec![good.as_str()], 401),
        ("another pool's token", "/config/worker", vec![other.as_str()], 403),
        ("its own token", "/config/worker", vec![good.as_str()], 200),
        ("its own token in the query", &query, vec![], 200),
        ("its own token for another pool", "/config/master", vec![good.as_str()], 403),
        ("its own token for a pool that is not there", "/config/nope", vec![good.as_str()], 403),
    ] {
        let mut headers: Vec<_> = authorization.iter().map(|value| ("authorization", *value)).collect();
        headers.push(("accept", IGNITION_3_5));
        let answer = cluster.mcs("GET", path, &headers, "").await;
        assert_eq!(answer.status, status, "{what}");
        assert_eq!(answer.header("www-authenticate").starts_with("Bearer "), status == 401, "{what}");
        assert_eq!(answer.body.is_empty(), status != 200, "{what}: a refusal has no body");
    }
    assert_eq!(cluster.get_config("worker", &every).await.status, 200, "a token for every pool");
    assert_eq!(cluster.get_config("nope", &every).await.status, 404, "unknown pool");
    assert_eq!(
        cluster.get_config("master", &every).await.status,
        500,
        "nothing rendered yet: tried again by nodes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_refused_and_an_unreadable_end_has_passed() {
    let cluster = with_worker_config().await;
    let token = cluster.token(Some("worker")).await;
    assert_eq!(cluster.get_config("worker", &token).await.status, 200);
    for end in ["2020-01-01T00:00:00Z", "tomorrow"] {
        end_all_at(&cluster, end).await;
        assert_eq!(cluster.get_config("worker", &token).await.status, 401, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_keeps_the_previous_token_for_its_grace_only() {
    let start = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap(); // ends are stored in whole seconds
    let set = tokio::sync::watch::Sender::new(start);
    let cluster = Cluster::with(|options| options.clock = Clock::set_by(set.subscribe())).await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    let rotate =
        |grace| Wish { pool: Some("worker".into()), node: None, ttl: Duration::hours(1), grace: Some(grace) };
    let first = issue(&cluster.admin, &Wish { grace: None, ..rotate(Duration::ZERO) }, start).await.unwrap();
    let second = issue(&cluster.admin, &rotate(Duration::minutes(5)), start).await.unwrap();
    assert_eq!(cluster.get_config("worker", &first).await.status, 200, "previous, within its grace");
    assert_eq!(cluster.get_config("worker", &second).await.status, 200, "current");
    let third = issue(&cluster.admin, &rotate(Duration::ZERO), start).await.unwrap();
    assert_eq!(cluster.get_config("worker", &second).await.status, 401, "previous, without a grace");
    assert_eq!(cluster.get_config("worker", &first).await.status, 200, "the one before keeps its own grace");
    set.send_replace(start + Duration::minutes(5) - Duration::SECOND);
    assert_eq!(cluster.get_config("worker", &first).await.status, 200, "the grace's last second");
    set.send_replace(start + Duration::minutes(5));
    assert_eq!(cluster.get_config("worker", &first).await.status, 401, "its grace is over");
    assert_eq!(cluster.get_config("worker", &third).await.status, 200, "current");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_secret_or_with_the_gate_off_nobody_is_asked() {
    let cluster = with_worker_config().await;
    let ask = [("accept", IGNITION_3_5)];
    assert_eq!(cluster.mcs("GET", "/config/worker", &ask, "").await.status, 401);
    cluster.admin.delete(SECRET).await.unwrap();
    assert_eq!(cluster.mcs("GET", "/config/worker", &ask, "").await.status, 200, "an upgraded cluster");
    let open = Cluster::with(|options| options.no_token = true).await;
    open.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    assert_eq!(open.mcs("GET", "/config/worker", &ask, "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_digests_are_stored_but_for_the_current_token() {
    let cluster = with_worker_config().await;
    let first = cluster.token(Some("worker")).await;
    let second = cluster.token(Some("worker")).await;
    let secret = cluster.admin.get(SECRET).await.unwrap();
    let stored: Vec<String> = secret["data"]
        .as_object()
        .unwrap()
        .values()
        .map(|value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap())
        .collect();
    assert!(!stored.iter().any(|text| text.contains(&first)), "a token that is no longer current");
    assert!(stored.iter().any(|text| text == &second), "the current one, for pointers");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_paths_and_methods_get_the_real_servers_statuses() {
    let cluster = with_worker_config().await;
    let bearer = format!("Bearer {}", cluster.token(None).await);
    for (method, path, status) in [
        ("GET", "/config/a/../worker", 404),
        ("GET", "/config/../config/worker", 404),
        ("GET", "/config/%77orker", 404),
        ("GET", "/config//worker", 404),
        ("GET", "/config/worker/", 404),
        ("GET", "/config/", 404),
        ("GET", "/config/WORKER", 404),
        ("GET", "/config/worker%00", 404),
        ("GET", "/nope", 404),
        ("POST", "/config/worker", 405),
        ("DELETE", "/config/worker", 405),
        ("POST", "/healthz", 405),
        ("PUT", "/nope", 405),
        ("GET", "/healthz", 200),
        ("HEAD", "/config/worker", 200),
    ] {
        let headers = [("authorization", bearer.as_str()), ("accept", IGNITION_3_5)];
        let answer = cluster.mcs(method, path, &headers, "").await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.body.is_empty(), "{method} {path}");
    }
    let head = cluster
        .mcs("HEAD", "/config/worker", &[("authorization", &bearer), ("accept", IGNITION_3_5)], "")
        .await;
    let got = cluster
        .mcs("GET", "/config/worker", &[("authorization", &bearer), ("accept", IGNITION_3_5)], "")
        .await;
    assert_eq!(head.header("content-length"), got.body.len().to_string());
    assert_eq!(got.header("content-type"), "application/json");
    let old = [
        ("authorization", bearer.as_str()),
        ("accept", "application/vnd.coreos.ignition+json;version=4.0.0"),
    ];
    assert_eq!(cluster.mcs("GET", "/config/worker", &old, "").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_gated_bounded_and_kept() {
    let cluster = with_worker_config().await;
    let bearer = format!("Bearer {}", cluster.token(Some("worker")).await);
    let send = async |token: Option<&str>, body: &str| {
        let headers: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
        cluster.mcs("POST", "/oneboot/v1/report", &headers, body).await.status
    };
    let path =
        "/api/v1/namespaces/openshift-machine-config-operator/configmaps?labelSelector=oneboot.dev/report";
    assert_eq!(send(None, "{}").await, 401);
    assert_eq!(send(Some(&bearer), "not json").await, 400);
    let large = json!({"boot": "x".repeat(64 << 10)}).to_string();
    assert_eq!(send(Some(&bearer), &large).await, 413);
    assert_eq!(cluster.admin.get(path).await.unwrap()["items"], json!([]), "none of these is kept");
    assert_eq!(send(Some(&bearer), r#"{"format":1,"outcome":"ok"}"#).await, 204);
    let kept = cluster.admin.get(path).await.unwrap();
    assert_eq!(kept["items"][0]["data"]["report.json"], r#"{"format":1,"outcome":"ok"}"#);
}

#[test]
fn judgement_table() {
    let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
    let at = |offset| oneboot_cluster::stamp::rfc3339(now + offset);
    let record = |token: &str, pool: Option<&str>, end: String| Record {
        sha256: oneboot_cluster::stamp::sha256(token),
        pool: pool.map(str::to_owned),
        not_after: end,
        node: None,
    };
    let records = [
        record("worker", Some("worker"), at(Duration::HOUR)),
        record("old", Some("worker"), at(-Duration::SECOND)),
        record("ending", Some("worker"), at(Duration::ZERO)),
        record("every", None, at(Duration::HOUR)),
        record("both", Some("infra"), at(Duration::HOUR)),
        record("both", Some("worker"), at(-Duration::HOUR)),
    ];
    let verdict = |token: &str| match judge(&records, &Presented::Token(token.into()), Some("worker"), now) {
        Verdict::Admitted { .. } => "admitted",
        Verdict::Unknown => "unknown",
        Verdict::Expired => "expired",
        Verdict::WrongPool => "wrong pool",
        Verdict::Missing | Verdict::Malformed => "not judged",
    };
    assert_eq!(verdict("worker"), "admitted");
    assert_eq!(verdict(" worker\n"), "admitted", "trimmed");
    assert_eq!(verdict("every"), "admitted");
    assert_eq!(verdict("old"), "expired");
    assert_eq!(verdict("ending"), "expired", "the end itself is past");
    assert_eq!(verdict("nobody"), "unknown");
    assert_eq!(verdict("both"), "wrong pool", "good for infra, expired for worker");
    assert_eq!(judge(&[], &Presented::Nothing, Some("worker"), now), Verdict::Missing);
    assert_eq!(judge(&records, &Presented::Malformed, Some("worker"), now), Verdict::Malformed);
}
