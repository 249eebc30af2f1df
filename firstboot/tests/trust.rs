//! Owns: whom a fetch trusts, over real TLS: bundles, keys, versions, names, constraints, dates.
//! Given a server's certificate and the pointer's CAs, gives the exit code and the outcome; what is refused is sent nothing.
//! Never: changes the machine's clock: certificates of other years look the same to it.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::pki::{Authority, DAY, YEAR};
use common::server::{Server, ok};
use common::{CONFIG, Node, pointer_with};

/// Against a certificate, with the pointer's CAs, and no patience.
fn certificate(
    tls: std::sync::Arc<rustls::ServerConfig>,
    host: &str,
    authorities: &[&str],
) -> (Node, common::Ran) {
    let server = Server::start(tls, vec![ok(CONFIG)]);
    let url = format!("https://{host}:{}/config/worker", server.address.port());
    let node = Node::new(&pointer_with(&format!(r#"{{"source":"{url}"}}"#), authorities)).with_token();
    let node = node.fragment("give_up_after = '0s'");
    let ran = node.fetch();
    if ran.code != 0 {
        assert!(server.requests().is_empty(), "something was sent to a server that is not trusted");
        node.assert_nothing_handed_over();
    }
    (node, ran)
}

#[test]
fn certificates_that_cannot_be_trusted_are_told_apart() {
    let ca = Authority::new("root-ca");
    let names = ["127.0.0.1", "localhost"];
    let old = Authority::valid("old-ca", -3 * YEAR, -DAY);
    for (tls, authority, outcome, words) in [
        (Authority::new("other-ca").serving(), &ca, "certificate-untrusted", "\"other-ca\""),
        (ca.serving_for(&names, -9 * DAY, -DAY), &ca, "certificate-expired", "the machine's clock says"),
        (ca.serving_for(&["mcs.example"], -DAY, DAY), &ca, "certificate-wrong-name", "mcs.example"),
        (old.serving_for(&names, -DAY, DAY), &old, "certificate-expired", "old-ca"),
    ] {
        let (node, ran) = certificate(tls, "127.0.0.1", &[&authority.pem()]);
        ran.assert(78).says(words);
        assert_eq!(node.report()["outcome"], outcome);
    }
}

#[test]
fn a_clock_that_is_years_behind_refuses_nothing() {
    // Seen from the certificates, this machine's clock is that far behind.
    let ca = Authority::valid("young-ca", 2 * YEAR, 12 * YEAR);
    let (_, ran) = certificate(ca.serving_for(&["127.0.0.1"], 3 * YEAR, 4 * YEAR), "127.0.0.1", &[&ca.pem()]);
    ran.assert(0);
    // Expired by the CA's own date, although the clock has not come there yet.
    let (node, ran) = certificate(ca.serving_for(&["127.0.0.1"], -DAY, YEAR), "127.0.0.1", &[&ca.pem()]);
    ran.assert(78);
    assert_eq!(node.report()["outcome"], "certificate-expired");
    // A date in the future helps nobody whom the CA did not sign.
    let other = Authority::valid("other-ca", -DAY, 12 * YEAR);
    let (_, ran) =
        certificate(other.serving_for(&["127.0.0.1"], 3 * YEAR, 4 * YEAR), "127.0.0.1", &[&ca.pem()]);
    ran.assert(78);
}

#[test]
fn old_and_new_ca_in_one_bundle_or_in_two_entries() {
    let (old, new) = (Authority::new("root-ca"), Authority::new("root-ca"));
    let both = old.pem() + &new.pem();
    for authorities in [vec![both.as_str()], vec![&old.pem(), &new.pem()]] {
        for signer in [&old, &new] {
            let (node, ran) = certificate(signer.serving(), "localhost", &authorities);
            ran.assert(0);
            assert_eq!(node.report()["ca_fingerprints"].as_array().unwrap().len(), 2);
        }
    }
}

#[test]
fn rsa_and_ecdsa_sign_for_each_other() {
    let (ecdsa, rsa) = (Authority::new("root-ca"), Authority::rsa("root-ca"));
    for (tls, ca) in [
        (ecdsa.serving_rsa(), &ecdsa),
        (rsa.serving(), &rsa),
        (rsa.serving_rsa(), &rsa),
        (ecdsa.serving(), &ecdsa),
    ] {
        certificate(tls, "127.0.0.1", &[&ca.pem()]).1.assert(0);
    }
}

#[test]
fn each_version_of_tls_is_enough() {
    let ca = Authority::new("root-ca");
    for version in rustls::ALL_VERSIONS {
        certificate(ca.serving_only(version), "127.0.0.1", &[&ca.pem()]).1.assert(0);
    }
}

#[test]
fn an_address_needs_its_own_name_in_the_certificate() {
    let ca = Authority::new("root-ca");
    certificate(ca.serving_for(&["127.0.0.1"], -DAY, DAY), "127.0.0.1", &[&ca.pem()]).1.assert(0);
    for (name, host) in [("localhost", "127.0.0.1"), ("127.0.0.1", "localhost"), ("127.0.0.2", "127.0.0.1")] {
        let (node, ran) = certificate(ca.serving_for(&[name], -DAY, DAY), host, &[&ca.pem()]);
        ran.assert(78).says(name);
        assert_eq!(node.report()["outcome"], "certificate-wrong-name", "{name} for {host}");
    }
}

#[test]
fn what_a_ca_may_not_sign_is_not_trusted() {
    for (domain, code) in [("localhost", 0), ("example", 78)] {
        let ca = Authority::constrained("root-ca", domain);
        let (node, ran) = certificate(ca.serving_for(&["localhost"], -DAY, DAY), "localhost", &[&ca.pem()]);
        ran.assert(code);
        assert_eq!(
            node.report()["outcome"],
            if code == 0 { "fetched" } else { "certificate-untrusted" },
            "{domain}"
        );
    }
}

#[test]
fn a_compressed_ca_with_its_hash() {
    use sha2::{Digest, Sha512};
    use std::io::Write;
    let (ca, other) = (Authority::new("root-ca"), Authority::new("other-ca"));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(ca.pem().as_bytes()).unwrap();
    let source = oneboot_firstboot::dataurl::encode(&encoder.finish().unwrap());
    for (hashed, outcome) in [(&ca, "fetched"), (&other, "unusable-ca")] {
        let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
        let hash: String = Sha512::digest(hashed.pem())
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let entry = format!(
            r#"{{"source":"{source}","compression":"gzip","verification":{{"hash":"sha512-{hash}"}}}}"#
        );
        let text = pointer_with(&format!(r#"{{"source":"{}"}}"#, server.url("/config/worker")), &[]);
        let authorities = r#""certificateAuthorities":["#;
        let node = Node::new(&text.replace(authorities, &format!("{authorities}{entry}"))).with_token();
        node.fetch().assert(if outcome == "fetched" { 0 } else { 78 });
        assert_eq!(node.report()["outcome"], outcome);
    }
}
