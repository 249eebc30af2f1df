//! Owns: every way in which a fetch can end, and what follows from it: accept, wait, step down, give up.
//! Given what was seen, what came before and how long it has lasted, gives a `Decision`; pure, no clock, no dice.
//! Never: mentions a URL or a body; who fetches adds those to the message.

use crate::backoff::Backoff;
use crate::exit::Exit;
use std::time::Duration;

/// What follows from an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Nothing to follow: it went well, or it is none of our business.
    Done,
    /// Retried for ever on the fast schedule: the fault is the network's or the server's and will pass.
    Forever,
    /// Retried slowly until `give_up_after`: a person has to act, and may be doing so.
    Patient,
    /// Three tries on the fast schedule: a rollout may be in the middle, but a broken document stays broken.
    Three,
    /// Asked again with the next older spec.
    StepDown,
    /// No retry could change it.
    AtOnce,
}

macro_rules! outcomes {
    ($($variant:ident $name:literal $policy:ident $exit:ident $id:literal $seen:literal $advice:literal;)*) => {
        /// One row of the table: what was seen.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Outcome { $(#[doc = $seen] $variant,)* }

        impl Outcome {
            /// Every outcome, in the order of the README's table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in the report and the journal.
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name,)* } }
            /// What follows.
            pub const fn policy(self) -> Policy { match self { $(Self::$variant => Policy::$policy,)* } }
            /// The exit code when it was the last one.
            pub const fn exit(self) -> Exit { match self { $(Self::$variant => Exit::$exit,)* } }
            /// The journal's `MESSAGE_ID`: fixed for ever, for whoever filters by it.
            pub const fn message_id(self) -> &'static str { match self { $(Self::$variant => $id,)* } }
            /// What was seen, in a table's words.
            pub const fn seen(self) -> &'static str { match self { $(Self::$variant => $seen,)* } }
            /// What to do about it.
            pub const fn advice(self) -> &'static str { match self { $(Self::$variant => $advice,)* } }
        }
    };
}

outcomes! {
    Fetched "fetched" Done Ok "b8d1c3a1f7a34a0e9a64f2f1c7de0001" "the config is handed over" "nothing";
    NotEngaged "not-engaged" Done Ok "b8d1c3a1f7a34a0e9a64f2f1c7de0002" "this first boot is none of our business" "nothing; a token, an oneboot.* kernel argument, or an https /config/<pool> reference with a CA would engage it";
    Unreachable "unreachable" Forever Unavailable "b8d1c3a1f7a34a0e9a64f2f1c7de0003" "no route, no DNS answer, refused, reset" "check that the host resolves and answers on this port from this machine's network, and that a firewall lets it through";
    TlsFailed "tls-failed" Forever Unavailable "b8d1c3a1f7a34a0e9a64f2f1c7de0004" "the TLS handshake fails for another reason than the certificate" "check that the port speaks TLS 1.2 or 1.3, and that nothing in between intercepts it";
    Stalled "stalled" Forever Unavailable "b8d1c3a1f7a34a0e9a64f2f1c7de0005" "timeout, or no byte for 20 s" "check the load of the Machine Config Server and the path MTU to it";
    Truncated "truncated" Forever Unavailable "b8d1c3a1f7a34a0e9a64f2f1c7de0006" "the connection ended inside the answer" "check what is between this machine and the server: a proxy or load balancer cuts connections";
    ServerError "server-error" Forever Unavailable "b8d1c3a1f7a34a0e9a64f2f1c7de0007" "408, 429, 5xx, or an answer that is not HTTP" "look at the Machine Config Server's log: it answers this for a pool it cannot serve yet as well";
    EmptyConfig "empty-config" Forever Unavailable "b8d1c3a1f7a34a0e9a64f2f1c7de0008" "200 or 204 with an empty body" "look at the Machine Config Server's log: an empty answer is never a config";
    NotPermitted "not-permitted" Patient NotPermitted "b8d1c3a1f7a34a0e9a64f2f1c7de0009" "401, 403 or 511" "give this machine a current token of its pool as the systemd credential oneboot.token, and check that it has not expired";
    PoolUnknown "pool-unknown" Patient Unavailable "b8d1c3a1f7a34a0e9a64f2f1c7de000a" "404" "check that the pool in the pointer's URL exists: oc get machineconfigpools";
    UnexpectedStatus "unexpected-status" Patient Protocol "b8d1c3a1f7a34a0e9a64f2f1c7de000b" "any other status" "check that the URL leads to a Machine Config Server and not to something else";
    CertificateUntrusted "certificate-untrusted" Patient Config "b8d1c3a1f7a34a0e9a64f2f1c7de000c" "no CA of the pointer signed the certificate" "give this machine a pointer with the current CA: the cluster's *-user-data secret has it";
    CertificateExpired "certificate-expired" Patient Config "b8d1c3a1f7a34a0e9a64f2f1c7de000d" "the certificate or its CA has expired" "if the machine's clock is right, renew the server's certificate; if it is ahead, set it in the firmware";
    CertificateNotYetValid "certificate-not-yet-valid" Patient Config "b8d1c3a1f7a34a0e9a64f2f1c7de000e" "the certificate is not yet valid" "set the machine's clock in the firmware, or reissue the server's certificate";
    CertificateWrongName "certificate-wrong-name" Patient Config "b8d1c3a1f7a34a0e9a64f2f1c7de000f" "the certificate is for another name" "use a name in the pointer that the server's certificate has, or reissue the certificate with this one";
    SpecRefused "spec-refused" StepDown Protocol "b8d1c3a1f7a34a0e9a64f2f1c7de0010" "400" "the server serves no Ignition spec that this image understands: update one of them";
    NotJson "not-json" Three Data "b8d1c3a1f7a34a0e9a64f2f1c7de0011" "a body that is not JSON" "check what answers at this URL: proxies and load balancers send error pages with status 200";
    NotIgnition "not-ignition" Three Data "b8d1c3a1f7a34a0e9a64f2f1c7de0012" "JSON that is not an Ignition config" "check that the URL is that of a rendered config: /config/<pool>";
    UnsupportedSpec "unsupported-spec" Three Data "b8d1c3a1f7a34a0e9a64f2f1c7de0013" "an Ignition spec that this image does not understand" "serve an older spec, or use an image with a newer Ignition";
    DigestMismatch "digest-mismatch" Three Data "b8d1c3a1f7a34a0e9a64f2f1c7de0014" "the content does not match its verification hash" "correct the hash in the document that refers to it, or restore the content";
    RedirectRefused "redirect-refused" AtOnce Protocol "b8d1c3a1f7a34a0e9a64f2f1c7de0015" "a redirect to another origin or to http, or a fourth one" "put the final https URL into the pointer: a token is never sent anywhere else";
    TooLarge "too-large" AtOnce Data "b8d1c3a1f7a34a0e9a64f2f1c7de0016" "a body over 32 MiB, or 64 MiB decompressed" "make the config smaller: large content belongs into the OS image";
    TooDeep "too-deep" AtOnce Data "b8d1c3a1f7a34a0e9a64f2f1c7de0017" "references nested more than 8 deep" "flatten the references";
    Cycle "cycle" AtOnce Data "b8d1c3a1f7a34a0e9a64f2f1c7de0018" "a config that refers to itself" "remove the reference that leads back";
    NoPointer "no-pointer" AtOnce Config "b8d1c3a1f7a34a0e9a64f2f1c7de0019" "a token or argument, but no pointer config" "provide the pointer as user data, as oneboot.url=, or with --pointer";
    BadPointer "bad-pointer" AtOnce Data "b8d1c3a1f7a34a0e9a64f2f1c7de001a" "a pointer that is not an Ignition config" "check the user data of this machine: oneboot-firstboot check FILE";
    NothingToFetch "nothing-to-fetch" AtOnce Data "b8d1c3a1f7a34a0e9a64f2f1c7de001b" "a reference that cannot be fetched" "use an https URL without user name and password";
    NoCa "no-ca" AtOnce Config "b8d1c3a1f7a34a0e9a64f2f1c7de001c" "no CA to trust" "put the Machine Config Server's CA into the pointer's ignition.security.tls.certificateAuthorities, or use --ca";
    UnusableCa "unusable-ca" AtOnce Config "b8d1c3a1f7a34a0e9a64f2f1c7de001d" "a CA that cannot be used" "put the CA into the pointer as PEM in a data: URL; check it with openssl x509";
    TokenOnCmdline "token-on-cmdline" AtOnce Config "b8d1c3a1f7a34a0e9a64f2f1c7de001e" "a token on the kernel command line" "every user can read it there: use the systemd credential oneboot.token (SMBIOS, fw_cfg or TPM-sealed), then rotate this token";
    BadToken "bad-token" AtOnce Config "b8d1c3a1f7a34a0e9a64f2f1c7de001f" "a token that is empty or has characters that no header can carry" "write the token as one line of base64";
    ConflictingUrl "conflicting-url" AtOnce Config "b8d1c3a1f7a34a0e9a64f2f1c7de0020" "ignition.config.url= together with a token" "use oneboot.url= instead: Ignition would fetch its own URL again and keep the header";
    TokenRepeated "token-repeated" AtOnce Config "b8d1c3a1f7a34a0e9a64f2f1c7de0024" "the token in a config besides the reference that it is for" "remove it there: Ignition would keep it on this machine; if a server repeats it, rotate it";
    NoMetadata "no-metadata" AtOnce Unavailable "b8d1c3a1f7a34a0e9a64f2f1c7de0023" "the platform's metadata service refuses, or does not answer" "check that this machine may ask its platform's metadata service (AWS: IMDSv2 enabled)";
    BadSettings "bad-settings" AtOnce Config "b8d1c3a1f7a34a0e9a64f2f1c7de0022" "a setting in a firstboot.d fragment, or a record of the image, that cannot be used" "correct the file named above";
    LocalIo "local-io" AtOnce Io "b8d1c3a1f7a34a0e9a64f2f1c7de0021" "a local file could not be read or written" "check that the path exists, and who may read and write it";
}

/// The README's limits, in one place so that a test can have shorter ones.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Longest silence on a connection.
    pub stall: Duration,
    /// For one address to accept a connection.
    pub connect: Duration,
    /// For one whole exchange, however steadily it drips: 32 MiB at half a megabit per second.
    pub exchange: Duration,
    /// How long a patient retry lasts; the configuration's `give_up_after`.
    pub give_up_after: Option<Duration>,
    /// Between fast retries.
    pub fast: Backoff,
    /// Between patient retries: slow enough not to look like an attack on the token.
    pub slow: Backoff,
    /// Longest `Retry-After` that is honoured: beyond it the server has no idea either.
    pub retry_after: Duration,
    /// Tries before a broken document is believed.
    pub data_tries: u32,
    /// Bytes of a body as sent.
    pub body: u64,
    /// Bytes of a body after gzip.
    pub decompressed: u64,
    /// Redirects that are followed.
    pub redirects: u32,
    /// Documents within documents.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(20),
            connect: Duration::from_secs(10),
            exchange: Duration::from_secs(600),
            give_up_after: Some(Duration::from_secs(15 * 60)),
            fast: Backoff {
                floor: Duration::ZERO,
                first: Duration::from_millis(200),
                cap: Duration::from_secs(30),
            },
            slow: Backoff {
                floor: Duration::from_secs(5),
                first: Duration::from_secs(5),
                cap: Duration::from_secs(60),
            },
            retry_after: Duration::from_secs(5 * 60),
            data_tries: 3,
            body: 32 << 20,
            decompressed: 64 << 20,
            redirects: 3,
            depth: 8,
        }
    }
}

/// How long outcomes of one policy have followed each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streak {
    policy: Policy,
    count: u32,
    since: Duration,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Try again after a pause drawn from this schedule; never before `at_least`.
    Retry {
        /// The schedule.
        schedule: Backoff,
        /// Failures so far on it.
        failures: u32,
        /// What the server asked for, bounded.
        at_least: Duration,
        /// Read the token from its source again first.
        renew_proof: bool,
    },
    /// Ask at once for the next older spec, if there is one; otherwise give up.
    StepDown,
    /// This was the last try.
    GiveUp,
}

/// The table. `elapsed` is the time since the first try.
pub fn decide(
    outcome: Outcome,
    retry_after: Option<Duration>,
    before: Option<Streak>,
    elapsed: Duration,
    limits: &Limits,
) -> (Streak, Decision) {
    let policy = outcome.policy();
    let streak = match before.filter(|streak| streak.policy == policy) {
        Some(streak) => Streak { count: streak.count.saturating_add(1), ..streak },
        None => Streak { policy, count: 1, since: elapsed },
    };
    let retry = |schedule| Decision::Retry {
        schedule,
        failures: streak.count,
        at_least: retry_after.unwrap_or_default().min(limits.retry_after),
        renew_proof: outcome == Outcome::NotPermitted,
    };
    let decision = match policy {
        Policy::Done | Policy::AtOnce => Decision::GiveUp,
        Policy::StepDown => Decision::StepDown,
        Policy::Three if streak.count >= limits.data_tries => Decision::GiveUp,
        Policy::Three | Policy::Forever => retry(limits.fast),
        Policy::Patient => {
            let lasted = elapsed.saturating_sub(streak.since);
            match limits.give_up_after {
                Some(patience) if lasted >= patience => Decision::GiveUp,
                _ => retry(limits.slow),
            }
        }
    };
    (streak, decision)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn gives_up(outcome: Outcome, times: &[u64]) -> Vec<bool> {
        let limits = Limits::default();
        let mut streak = None;
        times
            .iter()
            .map(|seconds| {
                let (next, decision) = decide(outcome, None, streak, at(*seconds), &limits);
                streak = Some(next);
                decision == Decision::GiveUp
            })
            .collect()
    }

    #[test]
    fn the_limits_are_the_documented_ones() {
        let limits = Limits::default();
        let schedule = |backoff: Backoff| [backoff.floor, backoff.first, backoff.cap].map(|d| d.as_millis());
        assert_eq!(limits.stall, at(20));
        assert_eq!(limits.give_up_after, Some(at(900)));
        assert_eq!(limits.retry_after, at(300));
        assert_eq!(schedule(limits.fast), [0, 200, 30_000]);
        assert_eq!(schedule(limits.slow), [5000, 5000, 60_000]);
        assert_eq!((limits.body, limits.decompressed), (32 << 20, 64 << 20));
        assert_eq!((limits.redirects, limits.depth, limits.data_tries), (3, 8, 3));
    }

    #[test]
    fn the_networks_and_the_servers_faults_are_retried_for_ever() {
        use Outcome::{EmptyConfig, ServerError, Stalled, TlsFailed, Truncated, Unreachable};
        for outcome in [Unreachable, TlsFailed, Stalled, Truncated, ServerError, EmptyConfig] {
            assert_eq!(gives_up(outcome, &[0, 900, 1_000_000]), [false, false, false], "{outcome:?}");
            assert_eq!(outcome.exit(), Exit::Unavailable, "{outcome:?}");
        }
    }

    #[test]
    fn patience_ends_after_a_quarter_of_an_hour_of_the_same() {
        for (outcome, exit) in [
            (Outcome::NotPermitted, Exit::NotPermitted),
            (Outcome::PoolUnknown, Exit::Unavailable),
            (Outcome::UnexpectedStatus, Exit::Protocol),
            (Outcome::CertificateUntrusted, Exit::Config),
            (Outcome::CertificateExpired, Exit::Config),
            (Outcome::CertificateNotYetValid, Exit::Config),
            (Outcome::CertificateWrongName, Exit::Config),
        ] {
            assert_eq!(gives_up(outcome, &[100, 999, 1000]), [false, false, true], "{outcome:?}");
            assert_eq!(outcome.exit(), exit, "{outcome:?}");
        }
    }

    #[test]
    fn patience_starts_anew_after_a_fault_of_another_kind() {
        let limits = Limits::default();
        let (first, _) = decide(Outcome::NotPermitted, None, None, at(0), &limits);
        let (outage, _) = decide(Outcome::ServerError, None, Some(first), at(800), &limits);
        let (_, decision) = decide(Outcome::NotPermitted, None, Some(outage), at(1000), &limits);
        assert!(matches!(decision, Decision::Retry { failures: 1, renew_proof: true, .. }), "{decision:?}");
    }

    #[test]
    fn without_a_limit_patience_never_ends() {
        let limits = Limits { give_up_after: None, ..Limits::default() };
        let (first, _) = decide(Outcome::NotPermitted, None, None, at(0), &limits);
        let (_, decision) = decide(Outcome::NotPermitted, None, Some(first), at(1_000_000), &limits);
        assert!(matches!(decision, Decision::Retry { schedule, .. } if schedule == limits.slow));
    }

    #[test]
    fn a_broken_document_is_believed_the_third_time() {
        for outcome in
            [Outcome::NotJson, Outcome::NotIgnition, Outcome::UnsupportedSpec, Outcome::DigestMismatch]
        {
            assert_eq!(gives_up(outcome, &[0, 0, 0]), [false, false, true], "{outcome:?}");
            assert_eq!(outcome.exit(), Exit::Data);
        }
    }

    #[test]
    fn what_no_retry_can_change_ends_at_once() {
        for (outcome, exit) in [
            (Outcome::RedirectRefused, Exit::Protocol),
            (Outcome::TooLarge, Exit::Data),
            (Outcome::TooDeep, Exit::Data),
            (Outcome::Cycle, Exit::Data),
            (Outcome::NoCa, Exit::Config),
            (Outcome::TokenOnCmdline, Exit::Config),
            (Outcome::ConflictingUrl, Exit::Config),
        ] {
            assert_eq!(gives_up(outcome, &[0]), [true], "{outcome:?}");
            assert_eq!(outcome.exit(), exit);
        }
        assert_eq!(gives_up(Outcome::SpecRefused, &[0]), [false]);
    }

    #[test]
    fn retry_after_is_honoured_up_to_five_minutes() {
        let limits = Limits::default();
        for (asked, granted) in [(7, 7), (300, 300), (3000, 300)] {
            let (_, decision) = decide(Outcome::ServerError, Some(at(asked)), None, at(0), &limits);
            assert!(
                matches!(decision, Decision::Retry { at_least, .. } if at_least == at(granted)),
                "{decision:?}"
            );
        }
    }

    #[test]
    fn names_and_message_ids_are_unique() {
        let names: std::collections::BTreeSet<_> = Outcome::ALL.iter().map(|o| o.name()).collect();
        let ids: std::collections::BTreeSet<_> = Outcome::ALL.iter().map(|o| o.message_id()).collect();
        assert_eq!((names.len(), ids.len()), (Outcome::ALL.len(), Outcome::ALL.len()));
        assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
    }
}
