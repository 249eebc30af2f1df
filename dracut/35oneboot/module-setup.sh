#!/bin/bash
# Owns: what of oneboot is in an initramfs: the binary, its units, the emergency hook, and what is known about this image's Ignition.
# Given an image in which `dracut/install` has run and Ignition's module is there, gives an initramfs that can join a cluster.
# Never: an initramfs with a part missing. dracut goes on after a module that returns an error, so a missing part exits.

# 255: only when asked for by name or by another module. An initramfs that is made for something else (kdump, a rescue image) has no
# business with the cluster; the one that boots the node asks for us in `dracut.conf.d/35-oneboot.conf`.
check() {
    return 255
}

# ignition: what we prepare the way for. network: the drivers and whatever brings the interfaces up. systemd: units and credentials.
depends() {
    echo ignition network systemd
}

# Where credentials come from before any root file system is there: QEMU's fw_cfg and SMBIOS type 11 (systemd loads both by name).
# --optional: kernels that build them in, or do not have them (s390x), have no such module.
installkernel() {
    hostonly='' instmods -o qemu_fw_cfg dmi_sysfs
}

install() {
    local home=/usr/lib/oneboot unit

    inst_binary "$home/oneboot-firstboot" || oneboot_missing "$home/oneboot-firstboot"
    # For a person in the emergency shell: `oneboot-firstboot check /usr/lib/ignition/user.ign`.
    ln_r "$home/oneboot-firstboot" /usr/bin/oneboot-firstboot

    # Fragments of an image or an administrator go along, where they are.
    inst_multiple -o "$home/firstboot.d/*.toml" "/etc/oneboot/firstboot.d/*.toml"

    # What the units and the emergency hook call.
    inst_multiple journalctl systemctl touch || oneboot_missing "journalctl, systemctl or touch"

    for unit in oneboot-firstboot oneboot-neednet oneboot-report; do
        inst_simple "$moddir/$unit.service" "$systemdsystemunitdir/$unit.service" || oneboot_missing "$moddir/$unit.service"
    done
    inst_simple "$moddir/fetch-offline.conf" "$systemdsystemunitdir/ignition-fetch-offline.service.d/50-oneboot.conf" \
        || oneboot_missing "$moddir/fetch-offline.conf"

    # Links under ignition-complete.target are followed on a first boot only: Ignition's generator sees to that.
    oneboot_link add-requires ignition-complete.target oneboot-neednet.service
    oneboot_link add-requires ignition-complete.target oneboot-firstboot.service
    # Ignition would fetch a pointer whose reference we could not resolve, with the system's CAs and the token in its header.
    oneboot_link add-requires ignition-fetch.service oneboot-firstboot.service
    # The report: after a success beside Ignition's stages; after a failure of any of them as part of what is isolated.
    oneboot_link add-wants ignition-complete.target oneboot-report.service
    oneboot_link add-wants emergency.target oneboot-report.service

    # With a shell dracut runs the first hook, without one (rd.shell=0) the second. 20: before what others print, which scrolls it away
    # no more than a screen.
    inst_hook emergency 20 "$moddir/oneboot-last-lines.sh"
    inst_hook shutdown-emergency 20 "$moddir/oneboot-last-lines.sh"

    oneboot_ask_ignition "$initdir$home"
}

# oneboot_missing WHAT: ends the build of the initramfs.
oneboot_missing() {
    dfatal "oneboot: $1 is not in this image, and without it a node cannot join; run dracut/install with DESTDIR set to the image"
    exit 1
}

# oneboot_link VERB TARGET UNIT: links a unit below a target of the initramfs.
oneboot_link() {
    $SYSTEMCTL --quiet --root "$initdir" "$1" "$2" "$3" || oneboot_missing "the link from $2 to $3"
}

# oneboot_ask_ignition HOME: asks the Ignition that is in this initramfs (its module sorts before ours) what firstboot has to know about
# it, by running its fetch-offline stage on small configs: an answer from the program itself holds for patched and unreleased ones too.
# The answers are two files of one line, which firstboot finds beside itself:
#   ignition-spec   the newest spec version it accepts: what the MCS is asked for
#   ignition-dir    where `user.ign` goes: /run/ignition if it looks there (2.27), else a directory of ours that it is told of
oneboot_ask_ignition() {
    local ignition="$initdir/usr/bin/ignition" home="$1" spec='' directory=/run/oneboot/ignition minor scratch
    [[ -x $ignition ]] || oneboot_missing "Ignition (/usr/bin/ignition in the initramfs)"
    scratch=$(mktemp -d "$DRACUT_TMPDIR/oneboot.XXXXXX") || exit 1
    mkdir -p "$scratch"/{runtime,local,system}

    # 99: a bound, should a version ever accept everything.
    for ((minor = 0; minor < 99; minor++)); do
        printf '{"ignition":{"version":"3.%d.0"}}\n' "$minor" > "$scratch/system/user.ign"
        oneboot_run_ignition "$ignition" "$scratch" || break
        spec="3.$minor.0"
    done
    [[ $spec ]] || oneboot_missing "an Ignition that accepts spec 3 (this one: $("$ignition" -version 2>&1))"

    # Two pointers that can be told apart: an Ignition that looks in the runtime directory takes the one there.
    printf '{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":"/system"}]}}\n' > "$scratch/system/user.ign"
    printf '{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":"/runtime"}]}}\n' > "$scratch/runtime/user.ign"
    oneboot_run_ignition "$ignition" "$scratch" || oneboot_missing "an Ignition that reads user.ign"
    grep -q '"/runtime"' "$scratch/cache" && directory=/run/ignition

    echo "$spec" > "$home/ignition-spec" || exit 1
    echo "$directory" > "$home/ignition-dir" || exit 1
    dinfo "oneboot: Ignition accepts spec $spec and takes user.ign from $directory"
}

# oneboot_run_ignition IGNITION SCRATCH: its fetch-offline stage, with every path it reads or writes below SCRATCH. The platform is `file`
# with an empty config, so that only `user.ign` counts.
oneboot_run_ignition() {
    local ignition="$1" scratch="$2" state=()
    # 2.9 keeps no state and has no flag for it; all that do would write to the building machine's /run.
    "$ignition" -help 2>&1 | grep -q -e -state-file && state=(-state-file "$scratch/state" -neednet "$scratch/neednet")
    rm -f "$scratch/cache"
    IGNITION_SYSTEM_RUNTIME_CONFIG_DIR="$scratch/runtime" IGNITION_SYSTEM_LOCAL_CONFIG_DIR="$scratch/local" \
        IGNITION_SYSTEM_CONFIG_DIR="$scratch/system" IGNITION_CONFIG_FILE=/dev/null \
        "$ignition" -platform file -stage fetch-offline -root "$scratch" -config-cache "$scratch/cache" -log-to-stdout "${state[@]}" \
        &> "$scratch/log"
}
