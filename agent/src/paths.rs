//! Owns: every path that the agent knows by name, as the node sees it (a [`crate::root::Root`] resolves it in its tree).
//! Given nothing; gives constants, each with its owner's name.
//! Never holds logic.

/// Everything of ours that survives a reboot (0700).
pub const STATE_DIR: &str = "/var/lib/oneboot";
/// What the service knows about itself: states, boot ids, reboots taken.
pub const STATE: &str = "/var/lib/oneboot/state.json";
/// There once the node has settled for the first time: phase `joined` from then on.
pub const SETTLED: &str = "/var/lib/oneboot/settled";
/// One apply at a time.
pub const LOCK: &str = "/var/lib/oneboot/lock";
/// Write-ahead receipts, the last three.
pub const RECEIPTS: &str = "/var/lib/oneboot/receipts";
/// What `append` has appended, so that a second plan is empty.
pub const APPENDED: &str = "/var/lib/oneboot/appended.json";
/// The report that firstboot left, copied into the real root.
pub const FIRSTBOOT_REPORT: &str = "/var/lib/oneboot/firstboot.json";
/// The service's state for whoever looks at it.
pub const RUN_STATUS: &str = "/run/oneboot/agent.json";

/// Kernel parameters as files.
pub const PROC_SYS: &str = "/proc/sys";
/// Where systemd-sysctl finds what to set (sysctl.d(5)); `/etc/sysctl.conf` comes on top.
pub const SYSCTL_DIRS: [&str; 4] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d"];

/// The kernel command line, which names the deployment that runs.
pub const CMDLINE: &str = "/proc/cmdline";

/// Impact rules as shipped; `/etc` comes second and wins by file name.
pub const IMPACT_DIRS: [&str; 2] = ["/usr/lib/oneboot/impact.d", "/etc/oneboot/impact.d"];
/// Configuration fragments, lowest precedence first.
pub const CONFIG_DIRS: [&str; 3] =
    ["/usr/lib/oneboot/agent.d", "/run/oneboot/agent.d", "/etc/oneboot/agent.d"];

/// MCD's folder.
pub const MCD_DIR: &str = "/etc/machine-config-daemon";
/// The MachineConfig that the tree is at; read by MCD.
pub const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
/// The seed that the MCS serves; MCD copies it onto the Node.
pub const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
/// MCD's copies of what was there before a MachineConfig took a path over.
pub const MCD_ORIG: &str = "/etc/machine-config-daemon/orig";
/// MCD's stamps for paths that nothing was at before.
pub const MCD_NOORIG: &str = "/etc/machine-config-daemon/noorig";
/// systemd's own library, whose name holds its version.
pub const SYSTEMD_LIB: &str = "/usr/lib/systemd";
/// What MCD's first boot acts on.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";

/// The kubelet's folder of certificates; created by the kubelet.
pub const KUBELET_PKI: &str = "/var/lib/kubelet/pki";
/// The node's own client certificate and key, a link that the kubelet renames into place.
pub const KUBELET_CLIENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// The name under which the kubelet makes that link, before the rename.
pub const KUBELET_CLIENT_UPDATED: &str = "/var/lib/kubelet/pki/kubelet-client-updated.pem";
/// The kubelet's kubeconfig.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// The bootstrap kubeconfig.
pub const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";

/// The administrator's units.
pub const UNITS: &str = "/etc/systemd/system";
/// Where systemd looks for units, first found wins (systemd.unit(5); generators' folders are never ours).
pub const UNIT_PATH: [&str; 6] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/etc/systemd/system.attached",
];
/// Where presets are, first file name wins (systemd.preset(5)).
pub const PRESET_PATH: [&str; 4] = [
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
];
/// User databases, in the order in which names are looked up; the second is nss-altfiles'.
pub const PASSWD: [&str; 2] = ["/etc/passwd", "/usr/lib/passwd"];
/// Group databases.
pub const GROUP: [&str; 2] = ["/etc/group", "/usr/lib/group"];

/// The report while it is still where firstboot wrote it.
pub const FIRSTBOOT_REPORT_RUN: &str = "/run/oneboot/firstboot.json";
/// SELinux policies, one folder each.
pub const SELINUX: &str = "/etc/selinux";
/// Which of them counts.
pub const SELINUX_CONFIG: &str = "/etc/selinux/config";
/// Memory that is gone after a boot.
pub const RUN: &str = "/run";
/// Where new users' first files come from (useradd(8)).
pub const SKEL: &str = "/etc/skel";
/// Where [`RUN_STATUS`] is; everybody may look.
pub const RUN_DIR: &str = "/run/oneboot";
/// What MCD renames the seed to once it has taken it (without the last `s`: facts/mco.md 3.2).
pub const NODE_ANNOTATIONS_TAKEN: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// The name that the administrator gave the machine.
pub const HOSTNAME: &str = "/etc/hostname";
/// The unit whose environment names the node.
pub const KUBELET_UNIT: &str = "kubelet.service";
/// One folder for each pod of this node, made by the kubelet.
pub const POD_LOGS: &str = "/var/log/pods";
/// What systemd has imported from the platform (firmware, hypervisor); a mount of its own, read-only.
pub const CREDENTIALS: &str = "/run/credentials/@system";
/// The provisioning token among them.
pub const TOKEN_CREDENTIAL: &str = "/run/credentials/@system/oneboot.token";
/// The running kernel's boot, whatever the tree.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The running kernel's host name, whatever the tree.
pub const KERNEL_HOSTNAME: &str = "/proc/sys/kernel/hostname";
