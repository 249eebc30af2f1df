//! Owns: the part of a MachineConfig that only a reboot brings about: kernel, image, extensions.
//! Given two configs; gives the steps that differ.
//! Never stages anything: that is `stage`'s.

use super::{Disruption, PlannedStep, Subject};
use crate::{
    ignition::Kargs,
    machineconfig::{MachineConfig, Spec},
};

/// FIPS mode is decided when a system is installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "FIPS mode: found {found}, the config wants {wanted}; it cannot be changed after installation: install the node again or fix the pool's fips setting"
)]
pub struct Fips {
    /// What the node has.
    pub found: bool,
    /// What is wanted.
    pub wanted: bool,
}

/// Steps for everything that differs. Without a current config the OS counts as equal.
pub fn steps(
    desired: &MachineConfig,
    current: Option<&MachineConfig>,
    kargs: &Kargs,
    current_kargs: &Kargs,
) -> Result<Vec<PlannedStep>, Fips> {
    let Some(current) = current else { return Ok(Vec::new()) };
    let (to, from) = (&desired.spec, &current.spec);
    if to.fips != from.fips {
        return Err(Fips { found: from.fips, wanted: to.fips });
    }
    let extensions = |s: &Spec| s.extensions.join(" ");
    let mut steps = Vec::new();
    let mut add = |name: &str, from: String, to: String| {
        if from != to {
            steps.push(PlannedStep {
                kind: "os",
                subject: Subject::Unit(name.to_owned()),
                reason: "only a new boot changes it".to_owned(),
                effect: Disruption::Reboot.to_string(),
                from,
                to,
                disruption: Disruption::Reboot,
            });
        }
    };
    add("os-image", from.os_image_url.clone(), to.os_image_url.clone());
    add(
        "kernel-arguments",
        describe(&from.kernel_arguments, current_kargs),
        describe(&to.kernel_arguments, kargs),
    );
    add("kernel-type", kernel_type(from).to_owned(), kernel_type(to).to_owned());
    add("extensions", extensions(from), extensions(to));
    Ok(steps)
}

fn kernel_type(spec: &Spec) -> &str {
    if spec.kernel_type.is_empty() { "default" } else { &spec.kernel_type }
}

/// A MachineConfig's arguments, then Ignition's; those that must go with a minus.
fn describe(arguments: &[String], ignition: &Kargs) -> String {
    let mut all: Vec<String> = arguments.iter().chain(&ignition.should_exist).cloned().collect();
    all.extend(ignition.should_not_exist.iter().map(|a| format!("-{a}")));
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(spec: &str) -> MachineConfig {
        let text = format!(r#"{{"kind":"MachineConfig","metadata":{{"name":"m"}},"spec":{spec}}}"#);
        MachineConfig::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_differs_needs_a_reboot_and_nothing_else_does() {
        let none = Kargs::default();
        let from = config(r#"{"kernelType":"","kernelArguments":["a"]}"#);
        let to = config(r#"{"kernelType":"default","kernelArguments":["a","b"]}"#);
        let found = steps(&to, Some(&from), &none, &none).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].from.as_str(), found[0].to.as_str()), ("a", "a b"));
        assert_eq!(found[0].disruption, Disruption::Reboot);
        assert!(steps(&to, None, &none, &none).unwrap().is_empty());
    }

    #[test]
    fn fips_can_never_be_mended() {
        let none = Kargs::default();
        let e = steps(&config(r#"{"fips":true}"#), Some(&config("{}")), &none, &none).unwrap_err();
        assert!(e.to_string().starts_with("FIPS mode: found false, the config wants true"));
    }
}
