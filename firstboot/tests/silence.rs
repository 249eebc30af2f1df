//! Owns: servers that take their time: how long a connection may be silent, and how long an exchange may last.
//! Given shortened limits, gives what the library sees; the documented lengths are pinned beside the table.
//! Never: waits for the real limits.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::CONFIG;
use common::pki::Authority;
use common::server::{Answer, Server};
use oneboot_firstboot::document::Spec;
use oneboot_firstboot::fetch::{self, Seen};
use oneboot_firstboot::outcome::{Limits, Outcome};
use oneboot_firstboot::transport::{Client, Options};
use oneboot_firstboot::trust::{CaBundle, client_config};
use oneboot_firstboot::url::Url;
use std::time::{Duration, Instant};

const STALL: Duration = Duration::from_millis(250);

/// One exchange with a server that answers like this.
fn exchange(answer: Answer, budget: Duration) -> (Result<Vec<u8>, Seen>, Duration) {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![answer]);
    let limits = Limits { stall: STALL, ..Limits::default() };
    let tls = client_config(&CaBundle::from_pem(ca.pem().as_bytes()).unwrap(), 0, None).unwrap();
    let options = Options {
        dial: None,
        connect_timeout: limits.connect,
        stall_timeout: Some(limits.stall),
        total_timeout: Some(limits.exchange),
    };
    let url = Url::parse(&server.url("/config/worker")).unwrap();
    let began = Instant::now();
    let seen = fetch::get(&Client::new(tls, &options), &url, Spec(4), &[], budget, &limits);
    (seen, began.elapsed())
}

fn answer() -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{CONFIG}", CONFIG.len()).into_bytes()
}

#[test]
fn silence_ends_an_exchange_wherever_it_begins() {
    for sent in [0, 10, answer().len() - 1] {
        let (seen, took) = exchange(Answer::Hang(answer()[..sent].to_vec()), Duration::from_secs(60));
        let seen = seen.unwrap_err();
        assert_eq!(seen.outcome, Outcome::Stalled, "after {sent} bytes: {seen}");
        assert!(seen.detail.starts_with("no byte for too long"), "{seen}");
        assert!(took >= STALL && took < 20 * STALL, "after {sent} bytes: {took:?}");
    }
}

#[test]
fn a_drip_is_no_silence_and_still_ends_with_the_budget() {
    let pace = STALL / 50;
    let (seen, took) = exchange(Answer::Drip(answer(), pace), Duration::from_secs(60));
    assert_eq!(seen.unwrap(), CONFIG.as_bytes(), "longer than a stall in all, and never silent for one");
    assert!(took > STALL);
    let (seen, took) = exchange(Answer::Drip(answer(), pace), STALL);
    let seen = seen.unwrap_err();
    assert_eq!(seen.outcome, Outcome::Stalled);
    assert!(seen.detail.starts_with("the exchange took too long"), "{seen}");
    assert!(took < 20 * STALL, "{took:?}");
}
