//! Which spec is served for which `Accept` (facts/mco.md 1.2).

use oneboot_cluster::mcs::{Version, negotiate};

fn pair(version: Version) -> (u64, u64) {
    (version.major, version.minor)
}

#[test]
fn accept_table() {
    let ignition = "application/vnd.coreos.ignition+json";
    for (accept, wanted) in [
        (String::new(), Some((2, 2))),
        ("*/*".into(), Some((2, 2))),
        (format!("{ignition};version=3.5.0"), Some((3, 5))),
        (format!("{ignition};version=3.2.0, */*;q=0.1"), Some((3, 2))),
        (format!("{ignition}; version=3.1.0"), Some((3, 1))),
        (format!("{ignition};version=3.6.0"), Some((3, 5))),
        (format!("{ignition};version=3.99.0"), Some((3, 5))),
        (format!("{ignition};version=3.6.0-experimental"), Some((3, 5))),
        (format!("{ignition};version=2.2.0"), Some((2, 2))),
        (format!("{ignition};version=2.4.0"), Some((2, 2))),
        (format!("{ignition};version=2.1.0"), None),
        (format!("{ignition};version=4.0.0"), None),
        // Not semver, or quoted: the entry says nothing.
        (format!("{ignition};version=1"), Some((2, 2))),
        (format!("{ignition};version=\"3.2.0\""), Some((2, 2))),
        (ignition.to_owned(), Some((2, 2))),
        // The heaviest entry decides, and among equals the first.
        (format!("{ignition};version=3.1.0;q=0.5, {ignition};version=3.3.0"), Some((3, 3))),
        (format!("{ignition};version=3.1.0, {ignition};version=3.3.0"), Some((3, 1))),
        (format!("*/*, {ignition};version=3.3.0;q=0.2"), Some((3, 3))),
        ("nonsense".into(), Some((2, 2))),
    ] {
        assert_eq!(negotiate(Some(&accept)).map(pair), wanted, "Accept: {accept}");
    }
    assert_eq!(negotiate(None).map(pair), Some((2, 2)));
}
