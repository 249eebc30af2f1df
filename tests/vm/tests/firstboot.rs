//! firstboot in a real initramfs: each way in which a token comes in, each way in which a boot is refused, and boots that are not ours.

use oneboot_vm::machine::Boot;
use oneboot_vm::scene::{Scene, pointer_in_firmware};

/// Until firstboot hands over to an Ignition before 2.27 by itself.
fn shim(mut boot: Boot) -> Boot {
    let text = "[Service]\nExecStart=\nExecStart=/usr/lib/oneboot/oneboot-firstboot fetch --out /run/oneboot/ignition/user.ign\n\
                ExecStartPost=/bin/sh -c 'if [ -e /run/oneboot/ignition/user.ign ]; then echo IGNITION_SYSTEM_CONFIG_DIR=/run/oneboot/ignition >> /run/ignition.env; fi'\n";
    boot.initramfs.push(("etc/systemd/system/oneboot-firstboot.service.d/50-handoff.conf".to_owned(), text.as_bytes().to_vec()));
    boot
}

#[test]
fn a_token_as_fw_cfg_credential() -> anyhow::Result<()> {
    let scene = Scene::with_worker("fw_cfg-credential")?;
    let boot = shim(pointer_in_firmware(&scene.bare_pointer()?).token_in_fw_cfg(&scene.world.token()?));
    let machine = scene.start(&boot)?;
    let mut probe = machine.booted()?;
    println!("{}", probe.run("cat /run/oneboot/firstboot.json; echo; systemctl --failed --no-pager; ls -la /var/lib/oneboot /run/oneboot /run/oneboot/ignition /run/credentials/@system; systemd-analyze; journalctl -b -u oneboot-firstboot -u oneboot-report --no-pager; systemctl is-system-running; cat /run/ignition.json | head -c 300")?);
    println!("{:?}", scene.reports()?);
    Ok(())
}
