//! Owns: the metadata services of the platforms, each by a local server that insists on its protocol.
//! Given a platform and what its server answers, gives the pointer that is found and the requests that were made.
//! Never: asks a real platform: the address is the library's to set.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::server::{Answer, Request, Server, ok, status};
use oneboot_firstboot::cmdline;
use oneboot_firstboot::paths::Paths;
use oneboot_firstboot::pointer::{self, Context, Metadata, Pointer, PointerError};
use std::time::{Duration, Instant};

const DATA: &str = r#"{"ignition":{"version":"3.2.0"}}"#;

/// What the platform's source finds: user data, nothing, or why it cannot be had.
fn found(platform: &str, server: &Server) -> Result<Option<String>, String> {
    let root = tempfile::tempdir().unwrap();
    // Longer than the first two pauses of the schedule together, and much shorter than a person waits.
    let until = Instant::now() + Duration::from_millis(1500);
    let arguments = cmdline::parse(&format!("rw ignition.platform.id={platform}"));
    let context = Context {
        pointer: None,
        url: None,
        arguments: &arguments,
        paths: &Paths::new(root.path()),
        ours: None,
        metadata: &Metadata::at(&format!("http://{}", server.address), Some(until)),
    };
    match pointer::find(&context) {
        Ok(None) => Ok(None),
        Ok(Some((Pointer::Config { bytes, from }, source))) => {
            assert_eq!(
                (source, from.to_str().unwrap()),
                (platform, format!("the user data of {platform}").as_str())
            );
            Ok(Some(String::from_utf8(bytes).unwrap()))
        }
        Ok(Some((Pointer::Url(_), _))) => panic!("user data is not a URL"),
        Err(PointerError::Metadata(error)) => Err(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// The service as the platform runs it: a request that lacks anything is refused.
fn service(platform: &'static str, data: Answer) -> Server {
    let refuse =
        |right: bool, data: &Answer, status_: u16| if right { data.clone() } else { status(status_) };
    Server::plain(move |request, _| match (platform, request.line.as_str()) {
        ("aws", "PUT /latest/api/token HTTP/1.1") => {
            let ttl = request.header("x-aws-ec2-metadata-token-ttl-seconds");
            refuse(
                ttl.is_some_and(|ttl| (1..=21_600).contains(&ttl.parse().unwrap_or(0))),
                &ok("session=="),
                400,
            )
        }
        ("aws", "GET /2019-10-01/user-data HTTP/1.1") => {
            refuse(request.header("x-aws-ec2-metadata-token") == Some("session=="), &data, 401)
        }
        ("gcp", "GET /computeMetadata/v1/instance/attributes/user-data HTTP/1.1") => {
            refuse(request.header("metadata-flavor") == Some("Google"), &data, 403)
        }
        ("azure", "GET /metadata/instance/compute/userData?api-version=2021-01-01&format=text HTTP/1.1") => {
            refuse(request.header("metadata") == Some("true"), &data, 400)
        }
        ("openstack", "GET /openstack/latest/user_data HTTP/1.1") => data.clone(),
        _ => status(410), // nobody may take this for an answer
    })
}

fn encoded(platform: &str) -> Answer {
    if platform == "azure" { ok(STANDARD.encode(DATA)) } else { ok(DATA) }
}

const PLATFORMS: [&str; 4] = ["aws", "gcp", "azure", "openstack"];

#[test]
fn each_platform_is_asked_as_it_wants_to_be() {
    for platform in PLATFORMS {
        let server = service(platform, encoded(platform));
        assert_eq!(found(platform, &server), Ok(Some(DATA.to_owned())), "{platform}");
        assert_eq!(server.requests().len(), if platform == "aws" { 2 } else { 1 }, "{platform}");
    }
}

#[test]
fn a_machine_without_user_data_has_no_pointer() {
    for (platform, nothing) in [
        ("aws", status(404)),
        ("gcp", status(404)),
        ("azure", ok("")),
        ("openstack", status(404)),
        ("openstack", ok("")),
    ] {
        assert_eq!(found(platform, &service(platform, nothing)), Ok(None), "{platform}");
    }
}

#[test]
fn a_refusal_is_final_and_says_who_refused() {
    for (platform, refusal) in [("aws", 403), ("gcp", 403), ("azure", 400), ("openstack", 401)] {
        let server = service(platform, status(refusal));
        let error = found(platform, &server).unwrap_err();
        assert!(
            error.contains(&format!("platform {platform}: ")) && error.contains(&refusal.to_string()),
            "{error}"
        );
        assert_eq!(
            server.requests().len(),
            if platform == "aws" { 2 } else { 1 },
            "{platform} was asked again"
        );
    }
}

#[test]
fn without_imdsv2_aws_is_not_asked_at_all() {
    for refused in [status(403), status(404), status(405), ok("")] {
        let server = Server::plain(move |request: &Request, _| {
            if request.line.starts_with("PUT") { refused.clone() } else { ok(DATA) } // IMDSv1 would answer
        });
        let error = found("aws", &server).unwrap_err();
        assert!(error.contains("no session token (IMDSv2)"), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_service_that_is_not_ready_is_asked_again() {
    for platform in PLATFORMS {
        let ready = service(platform, encoded(platform));
        let address = ready.address;
        let server = Server::plain(
            move |request, number| {
                if number == 0 { status(503) } else { forward(address, request) }
            },
        );
        assert_eq!(found(platform, &server), Ok(Some(DATA.to_owned())), "{platform}");
    }
    let error = found("gcp", &Server::plain(|_, _| status(500))).unwrap_err();
    assert!(error.contains("status 500, for "), "{error}");
    // Not there yet, by Azure's account.
    let server = Server::plain(|_, number| if number == 0 { status(404) } else { ok(STANDARD.encode(DATA)) });
    assert_eq!(found("azure", &server), Ok(Some(DATA.to_owned())));
}

/// The same request to another server, and its answer.
fn forward(address: std::net::SocketAddr, request: &Request) -> Answer {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "{}\r\n", request.line).unwrap();
    for (name, value) in &request.headers {
        write!(stream, "{name}: {value}\r\n").unwrap();
    }
    write!(stream, "\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    Answer::Raw(answer)
}

#[test]
fn a_redirect_leads_nowhere() {
    let elsewhere = Server::plain(|_, _| ok(DATA));
    let location = format!("http://{}/", elsewhere.address);
    let server = service("gcp", common::server::with_header(302, "Location", &location));
    assert!(found("gcp", &server).unwrap_err().contains("status 302"));
    assert!(elsewhere.requests().is_empty());
}

#[test]
fn azures_user_data_is_base64_or_refused() {
    let server = service("azure", ok(DATA));
    assert!(found("azure", &server).unwrap_err().contains("not base64"));
}

#[test]
fn other_platforms_are_not_asked() {
    let server = Server::plain(|_, _| ok(DATA));
    for platform in ["metal", "qemu", "aws2", "AWS", ""] {
        assert_eq!(found(platform, &server), Ok(None), "{platform}");
    }
    assert_eq!(found("azurestack", &server), Ok(None), "custom data only, and there is no drive");
    assert!(server.requests().is_empty());
}
