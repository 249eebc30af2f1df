#!/bin/sh
# Sourced by dracut before the emergency shell, or before it powers off: shows on every console why firstboot gave up, and what to do.
# Only our own lines: systemd's about the unit ("Failed with result ...") would push the advice out of the last ten.

if systemctl is-failed --quiet oneboot-firstboot.service; then
    # 10: what firstboot's last message is made for.
    oneboot_lines=$(journalctl --boot --no-pager --quiet --output=cat --lines=10 _SYSTEMD_UNIT=oneboot-firstboot.service)
    while read -r oneboot_console _; do
        printf '\n%s\n\n' "$oneboot_lines" > "/dev/$oneboot_console"
    done < /proc/consoles
    unset oneboot_lines oneboot_console
fi
