//! firstboot in a real initramfs: each way in which a token comes in, each way in which a boot is refused, and a boot that is not ours.
//!
//! A boot takes most of a minute, so one boot answers several questions; each test says which.

use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use oneboot_e2e::defect;
use oneboot_vm::machine::{Boot, Machine};
use oneboot_vm::scene::{Scene, pointer_in_firmware, serve_plainly};
use serde_json::{Value, json};

/// Until firstboot hands over to an Ignition before 2.27 by itself.
fn shim(mut boot: Boot) -> Boot {
    let text = "[Service]\nExecStart=\nExecStart=/usr/lib/oneboot/oneboot-firstboot fetch --out /run/oneboot/ignition/user.ign\n\
                ExecStartPost=/bin/sh -c 'if [ -e /run/oneboot/ignition/user.ign ]; then echo IGNITION_SYSTEM_CONFIG_DIR=/run/oneboot/ignition >> /run/ignition.env; fi'\n";
    boot.initramfs.push((
        "etc/systemd/system/oneboot-firstboot.service.d/50-handoff.conf".to_owned(),
        text.as_bytes().to_vec(),
    ));
    boot
}

/// The whole of a good boot: everything pre-approved is there, the report is there and was kept and sent, the token is nowhere.
fn boots(
    scene: &Scene,
    mut machine: Machine,
    pointer_source: &str,
    token_source: &str,
) -> anyhow::Result<Value> {
    let mut probe = machine.booted()?;
    let expected = scene.pre_approved()?;
    assert!(
        expected.count() > 70,
        "the worker configuration has 48 files and 29 units, found {}",
        expected.count()
    );
    assert_eq!(expected.missing_on(&mut probe)?, Vec::<String>::new());

    let text = probe.run("cat /run/oneboot/firstboot.json")?;
    let report: Value = serde_json::from_str(&text).context("the report")?;
    assert_eq!(report["outcome"], "fetched");
    assert_eq!(
        (&report["pointer_source"], &report["token_source"]),
        (&json!(pointer_source), &json!(token_source))
    );
    assert_eq!(report["boot_id"].as_str(), Some(probe.run("cat /proc/sys/kernel/random/boot_id")?.trim()));
    assert_eq!(report["spec"], "3.3.0", "the newest that Debian's Ignition accepts");
    assert_eq!(probe.run("cat /var/lib/oneboot/firstboot.json")?, text, "the kept report");
    let modes = probe
        .run("stat -c %a /run/oneboot/firstboot.json /var/lib/oneboot/firstboot.json /var/lib/oneboot")?;
    assert_eq!(modes, "600\n600\n700\n");

    assert_eq!(scene.token_found(&mut machine, &mut probe)?, Vec::<String>::new());
    Ok(report)
}

#[test]
fn a_token_as_fw_cfg_credential_and_an_mcs_that_comes_up_late() -> anyhow::Result<()> {
    let mut scene = Scene::with_worker("fw_cfg-credential")?;
    let boot = pointer_in_firmware(&scene.bare_pointer()?).token_in_fw_cfg(&scene.world.token()?);
    scene.world.cluster.kill();
    let machine = scene.start(&shim(Boot { waits: Duration::from_secs(60), ..boot }))?;
    // Refused, not merely unreachable: the network is up and the port is closed. By then the wait is seconds long.
    for _ in 0..8 {
        machine.wait_for(|line| line.contains("Connection refused").then_some(()))?;
    }
    scene.world.cluster.restart()?;
    let report = boots(&scene, machine, "fw_cfg", "credential")?;
    assert!(report["attempts"].as_u64() > Some(8), "{report}");
    Ok(())
}

#[test]
fn a_token_as_smbios_credential_and_a_clock_ten_years_back() -> anyhow::Result<()> {
    let scene = Scene::with_worker("smbios-credential")?;
    let boot = pointer_in_firmware(&scene.bare_pointer()?).token_in_smbios(&scene.world.token()?);
    let machine = scene.start(&shim(Boot { clock: Some("2016-11-21T00:00:00".to_owned()), ..boot }))?;
    boots(&scene, machine, "fw_cfg", "credential")?;
    Ok(())
}

#[test]
fn a_token_in_the_pointer_of_user_ign() -> anyhow::Result<()> {
    let scene = Scene::with_worker("pointer-header")?;
    let pointer = scene.pointer()?.to_string().into_bytes();
    let boot = Boot { initramfs: vec![("usr/lib/ignition/user.ign".to_owned(), pointer)], ..Boot::default() };
    let machine = scene.start(&shim(boot))?;
    boots(&scene, machine, "user.ign", "pointer-header")?;
    Ok(())
}

/// The end of a boot that is refused: the lines are the last thing on the console before the machine switches itself off, the disk is as
/// it was, and Ignition never had its turn.
fn is_refused(
    scene: &Scene,
    mut machine: Machine,
    outcome: &str,
    exit: &str,
    advice: &str,
) -> anyhow::Result<()> {
    machine.powered_off()?;
    let console = machine.console.text()?;
    let (_, after) =
        console.split_once("Reached target emergency.target").context("the emergency target is reached")?;
    for line in [
        "oneboot-firstboot: this machine's configuration could not be fetched".to_owned(),
        format!("  outcome:  {outcome} ("),
        "  found:    ".to_owned(),
        format!("  to do:    {advice}"),
        format!("  exit:     {exit} ("),
    ] {
        assert!(after.contains(&line), "{line:?} is not among the last lines:\n{after}");
    }
    assert!(!console.contains("Starting ignition-fetch.service"), "Ignition fetched by itself");
    assert!(scene.disk_is_untouched(&machine)?);
    Ok(())
}

/// Slow retries end after the first: the fifteen minutes are tested where time is cheap.
const AT_ONCE: &str = "give_up_after = \"1s\"\n";

#[test]
fn a_wrong_token_ends_in_the_emergency_shell() -> anyhow::Result<()> {
    let scene = Scene::with_worker("wrong-token")?;
    let boot = pointer_in_firmware(&scene.bare_pointer()?)
        .token_in_fw_cfg(&defect::unknown_token())
        .setting(AT_ONCE);
    let machine = scene.start(&boot)?;
    is_refused(&scene, machine, "not-permitted", "77", "give this machine a current token")
}

#[test]
fn a_ca_that_did_not_sign_ends_in_the_emergency_shell() -> anyhow::Result<()> {
    let scene = Scene::with_worker("wrong-ca")?;
    let mut pointer = scene.bare_pointer()?;
    defect::foreign_ca(&mut pointer)?;
    let boot = pointer_in_firmware(&pointer).token_in_fw_cfg(&scene.world.token()?).setting(AT_ONCE);
    let machine = scene.start(&boot)?;
    is_refused(
        &scene,
        machine,
        "certificate-untrusted",
        "78",
        "give this machine a pointer with the current CA",
    )
}

#[test]
fn a_plain_ignition_config_boots_as_if_we_were_not_there() -> anyhow::Result<()> {
    let scene = Scene::with_worker("plain-ignition")?;
    let text = base64::prelude::BASE64_STANDARD.encode("Ignition was here\n");
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
    let journal = probe.run("journalctl --boot --unit=oneboot-firstboot.service --output=cat")?;
    assert!(journal.contains("none of our business"), "{journal}");
    Ok(())
}
