//! firstboot in a real initramfs: each way in which a token comes in, each way in which a boot is refused, and a boot that is not ours.
//!
//! A boot takes most of a minute, so one boot answers several questions; each test says which.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oneboot_e2e::defect;
use oneboot_vm::machine::{Boot, Machine};
use oneboot_vm::probe::Probe;
use oneboot_vm::scene::{Scene, oldest_ca, pointer_in_firmware, serve_plainly};
use serde_json::{Value, json};

/// What a good boot has in common with every other: everything pre-approved is there, Ignition was told of our directory and of no secret,
/// the report is there, was kept, and has reached the MCS; the journal has each of our events once.
fn comes_up(scene: &Scene, machine: &Machine, sources: [&str; 2]) -> anyhow::Result<(Probe, Value)> {
    let mut probe = machine.booted()?;
    let expected = scene.pre_approved()?;
    assert!(
        expected.count() > 70,
        "the worker configuration has 48 files and 29 units, found {}",
        expected.count()
    );
    assert_eq!(expected.missing_on(&mut probe)?, Vec::<String>::new());
    let environment = probe.run("cat /run/ignition.env")?;
    assert!(environment.ends_with("IGNITION_SYSTEM_CONFIG_DIR=/run/oneboot/ignition\n"), "{environment}");

    let text = probe.run("cat /run/oneboot/firstboot.json")?;
    let report: Value = serde_json::from_str(&text).context("the report")?;
    assert_eq!(report["outcome"], "fetched");
    assert_eq!([&report["pointer_source"], &report["token_source"]], sources);
    assert_eq!(report["boot_id"].as_str(), Some(probe.run("cat /proc/sys/kernel/random/boot_id")?.trim()));
    assert_eq!(report["spec"], "3.3.0", "the newest that Debian's Ignition accepts");
    assert_eq!(probe.run("cat /var/lib/oneboot/firstboot.json")?, text, "the kept report");
    let modes = probe
        .run("stat -c %a /run/oneboot/firstboot.json /var/lib/oneboot/firstboot.json /var/lib/oneboot")?;
    assert_eq!(modes, "600\n600\n700\n");
    assert_eq!(scene.reports()?, [report.clone()], "what the MCS has");

    let journal = probe.run("journalctl --boot --unit=oneboot-firstboot.service --output=cat")?;
    assert!(journal.contains("fetched https://"), "{journal}");
    assert_eq!(twice(journal.lines().filter(|line| line.contains("https://"))), None, "{journal}");
    Ok((probe, report))
}

/// The first line that is there twice.
fn twice<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    lines.into_iter().find(|line| !seen.insert(*line))
}

/// The end of a good boot: the machine is switched off, and the token is nowhere.
fn holds_no_token(scene: &Scene, machine: &mut Machine, probe: &mut Probe) -> anyhow::Result<()> {
    assert_eq!(scene.token_found(machine, probe)?, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_token_as_fw_cfg_credential_and_certificates_rotated_since_the_pointer_was_made() -> anyhow::Result<()> {
    let scene = Scene::with_worker("fw_cfg-credential")?;
    let boot = pointer_in_firmware(&scene.bare_pointer()?).token_in_fw_cfg(&scene.world.token()?);
    let admin = &scene.world.cluster.admin;
    admin.command(&["certs", "rotate", "--ca"])?;
    let rotated = admin.command(&["certs", "rotate", "--serving"])?;
    assert_eq!(
        rotated.trim_end(),
        "pointers carry 2 CAs; the serving certificate is by the newest of them",
        "the one that our pointer does not have"
    );
    let mut machine = scene.start(&boot)?;
    let (mut probe, report) = comes_up(&scene, &machine, ["fw_cfg", "credential"])?;
    assert_eq!(report["ca_fingerprints"].as_array().map(Vec::len), Some(1), "the old CA alone");
    holds_no_token(&scene, &mut machine, &mut probe)
}

#[test]
fn a_token_as_smbios_credential_and_a_clock_ten_years_back() -> anyhow::Result<()> {
    let scene = Scene::with_worker("smbios-credential")?;
    let pointer = scene.bare_pointer()?;
    let boot = pointer_in_firmware(&pointer).token_in_smbios(&scene.world.token()?);
    let mut machine = scene.start(&Boot { clock: Some("2016-11-21T00:00:00".to_owned()), ..boot })?;
    let (mut probe, _) = comes_up(&scene, &machine, ["fw_cfg", "credential"])?;
    // systemd moves a clock on to its own date of build, so firmware and firstboot have to be looked at.
    let console = machine.console.text()?;
    assert!(console.contains("setting system clock to 2016-11-21T00:"), "the firmware's clock\n{console}");
    let fetched = probe.run(
        "journalctl --boot --unit=oneboot-firstboot.service --output=json ONEBOOT_OUTCOME=fetched --lines=1",
    )?;
    let fetched: Value = serde_json::from_str(&fetched).context("the journal's entry")?;
    let clock = fetched["__REALTIME_TIMESTAMP"].as_str().context("the entry has a time")?;
    let clock = clock.parse::<u64>().context("microseconds")? / 1_000_000;
    let valid_from = oldest_ca(&pointer)?;
    assert!(clock < valid_from, "firstboot's clock: {clock}, the oldest certificate is from {valid_from}");
    holds_no_token(&scene, &mut machine, &mut probe)
}

#[test]
fn a_token_in_the_pointer_of_user_ign_and_an_mcs_that_comes_up_late() -> anyhow::Result<()> {
    let mut scene = Scene::with_worker("pointer-header")?;
    let vendor = json!({
        "ignition": { "version": "3.2.0" },
        "storage": { "files": [{ "path": "/etc/vendor", "contents": { "source": "data:,the%20vendor%27s%0A" } }] },
    });
    let boot = Boot {
        initramfs: vec![
            ("usr/lib/ignition/user.ign".to_owned(), scene.pointer()?.to_string().into_bytes()),
            // Where this Ignition would look without us: it has to find it where we send it.
            ("usr/lib/ignition/base.d/10-vendor.ign".to_owned(), vendor.to_string().into_bytes()),
        ],
        waits: Duration::from_secs(60),
        ..Boot::default()
    };
    scene.world.cluster.kill();
    let mut machine = scene.start(&boot)?;
    // Refused, not merely unreachable: the network is up and the port is closed. By then the wait is seconds long.
    for _ in 0..8 {
        machine.wait_for(|line| line.contains("Connection refused").then_some(()))?;
    }
    scene.world.cluster.restart()?;
    let (mut probe, report) = comes_up(&scene, &machine, ["user.ign", "pointer-header"])?;
    assert!(report["attempts"].as_u64() > Some(8), "{report}");
    assert_eq!(probe.run("cat /etc/vendor")?, "the vendor's\n");
    holds_no_token(&scene, &mut machine, &mut probe)
}

/// The end of a boot that is refused: the last lines of the journal are on the console before the machine switches itself off, each of
/// them once; the disk is as it was, and Ignition never had its turn. Gives those that say what happened.
fn is_refused(scene: &Scene, mut machine: Machine) -> anyhow::Result<Vec<String>> {
    machine.powered_off()?;
    let console = machine.console.text()?;
    let (_, after) =
        console.split_once("Reached target emergency.target").context("the emergency target is reached")?;
    let at = after.find("\noneboot-firstboot: this machine's").context("the last lines are there")? + 1;
    // Before them, from an empty line on: what the journal had last. Empty lines are around the whole, for a screen full of others.
    let first = after[..at].rfind("\n\n").context("an empty line is before them")? + 2;
    let shown: Vec<&str> =
        after[first..].lines().take_while(|line| !line.is_empty()).filter(|line| is_ours(line)).collect();
    assert!(shown.len() <= 10, "an emergency shell shows ten\n{shown:#?}");
    assert_eq!(twice(shown.iter().map(|line| line.trim_start_matches("error: "))), None, "{shown:#?}");
    assert!(!console.contains("Starting ignition-fetch.service"), "Ignition fetched by itself");
    assert!(scene.disk_is_untouched(&machine)?);
    let said = shown.iter().skip_while(|line| !line.starts_with("oneboot-firstboot: this machine's"));
    Ok(said.map(|line| (*line).to_owned()).collect())
}

/// Not systemd's own progress, which may come in between.
fn is_ours(line: &str) -> bool {
    !line.starts_with('[') && !line.starts_with("         ")
}

/// Slow retries end after the first: the fifteen minutes are tested where time is cheap.
const AT_ONCE: &str = "give_up_after = \"1s\"\n";

/// The line that has a time in it.
fn tried_until_final(lines: &mut Vec<String>) {
    let at = lines.iter().position(|line| line.starts_with("  tried:    ")).expect("how often it was tried");
    assert!(lines.remove(at).ends_with("; that was final"));
}

#[test]
fn a_wrong_token_ends_in_the_emergency_shell() -> anyhow::Result<()> {
    let scene = Scene::with_worker("wrong-token")?;
    let boot = pointer_in_firmware(&scene.bare_pointer()?)
        .token_in_fw_cfg(&defect::unknown_token())
        .setting(AT_ONCE);
    let mut lines = is_refused(&scene, scene.start(&boot)?)?;
    tried_until_final(&mut lines);
    assert_eq!(
        lines,
        [
            "oneboot-firstboot: this machine's configuration could not be fetched",
            "  outcome:  not-permitted (401, 403 or 511)",
            &format!("  found:    {}: status 401", scene.source()?),
            "  to do:    give this machine a current token of its pool as the systemd credential oneboot.token, and check that it has not expired",
            "  exit:     77 (not-permitted)",
        ]
    );
    Ok(())
}

#[test]
fn a_ca_that_did_not_sign_ends_in_the_emergency_shell() -> anyhow::Result<()> {
    let scene = Scene::with_worker("wrong-ca")?;
    let mut pointer = scene.bare_pointer()?;
    defect::foreign_ca(&mut pointer)?;
    let boot = pointer_in_firmware(&pointer).token_in_fw_cfg(&scene.world.token()?).setting(AT_ONCE);
    let mut lines = is_refused(&scene, scene.start(&boot)?)?;
    tried_until_final(&mut lines);
    let found = lines.remove(2);
    assert!(found.starts_with(&format!("  found:    {}: ", scene.source()?)), "{found}");
    assert!(found.contains("another cluster's machine-config-server"), "the CA that was given: {found}");
    assert_eq!(
        lines,
        [
            "oneboot-firstboot: this machine's configuration could not be fetched",
            "  outcome:  certificate-untrusted (no CA of the pointer signed the certificate)",
            "  to do:    give this machine a pointer with the current CA: the cluster's *-user-data secret has it",
            "  exit:     78 (config)",
        ]
    );
    Ok(())
}

#[test]
fn a_plain_ignition_config_boots_as_if_we_were_not_there() -> anyhow::Result<()> {
    let scene = Scene::with_worker("plain-ignition")?;
    let text = BASE64_STANDARD.encode("Ignition was here\n");
    let child = json!({
        "ignition": { "version": "3.2.0" },
        "storage": { "files": [{ "path": "/etc/plain", "contents": { "source": format!("data:;base64,{text}") } }] },
    });
    // By reference, so that the network is needed and firstboot is asked: it has to decline.
    let pointer = json!({ "ignition": { "version": "3.2.0", "config": { "merge": [{ "source": serve_plainly(&child)? }] } } });
    let machine = scene.start(&pointer_in_firmware(&pointer))?;
    let mut probe = machine.booted()?;
    assert_eq!(probe.run("cat /etc/plain")?, "Ignition was here\n");
    assert_eq!(
        probe.run("ls -A /run/oneboot /var/lib/oneboot 2>&1; true")?.matches("No such file").count(),
        2
    );
    let environment = probe.run("cat /run/ignition.env")?;
    assert!(!environment.contains("IGNITION_SYSTEM_CONFIG_DIR"), "{environment}");
    let journal = probe.run("journalctl --boot --unit=oneboot-firstboot.service --output=cat")?;
    assert!(journal.contains("none of our business"), "{journal}");
    assert_eq!(scene.reports()?, Vec::<Value>::new());
    Ok(())
}
