//! Owns: account databases as text: lines of fields with colons, the first being the name.
//! Given text; gives fields, and text with one thing changed.
//! Never prints a line: some hold password hashes.

/// Place of the hash, in `passwd`, `shadow` and `gshadow` alike.
const HASH: usize = 1;
/// Place of the day of the last change, in `shadow` (shadow(5)).
const CHANGED: usize = 2;
/// What no password matches, and what does not lock out keys either (`!` does, with some `sshd`s).
pub(super) const NO_PASSWORD: &str = "*";

/// Fields of the line with this name.
pub(super) fn line<'t>(text: &'t str, name: &str) -> Option<Vec<&'t str>> {
    text.lines().map(|l| l.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)
}

/// One field of the line with this name.
pub(super) fn field<'t>(text: &'t str, name: &str, nth: usize) -> Option<&'t str> {
    line(text, name)?.get(nth).copied()
}

/// The groups that list a user as their member, by name.
pub(super) fn groups_of<'t>(group: &'t str, user: &str) -> Vec<&'t str> {
    let lists = |fields: &[&str]| fields.get(3).is_some_and(|members| members.split(',').any(|m| m == user));
    let mut names: Vec<&str> = group
        .lines()
        .map(|l| l.split(':').collect::<Vec<_>>())
        .filter(|fields| lists(fields))
        .map(|fields| fields[0])
        .collect();
    names.sort_unstable();
    names
}

/// The text with another hash in the line with this name; `day` is written beside it in a `shadow` line.
pub(super) fn with_hash(text: &str, name: &str, hash: &str, day: Option<u64>) -> String {
    let day = day.map(|d| d.to_string());
    edit(text, |fields| {
        if fields[0] == name && fields.len() > HASH && fields[HASH] != hash {
            fields[HASH] = hash;
            if let (Some(day), true) = (&day, fields.len() > CHANGED) {
                fields[CHANGED] = day;
            }
        }
    })
}

fn edit<'t>(text: &'t str, change: impl Fn(&mut Vec<&'t str>)) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut fields: Vec<&str> = line.split(':').collect();
        change(&mut fields);
        out.push_str(&fields.join(":"));
        out.push('\n');
    }
    out
}

/// `/etc`'s lines and, after them, those that the image ships in `/usr/lib` under other names: what a lookup sees.
pub(super) fn with_shipped(etc: &str, shipped: &str) -> String {
    let mut text = etc.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for line in shipped.lines().filter(|l| !l.is_empty()) {
        let name = line.split(':').next().unwrap_or_default();
        if field(etc, name, 0).is_none() {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The way back: shipped lines that nothing has changed stay where they are shipped.
pub(super) fn without_shipped(text: &str, etc: &str, shipped: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let name = line.split(':').next().unwrap_or_default();
        let only_shipped = field(etc, name, 0).is_none() && shipped.lines().any(|s| s == line);
        if !only_shipped {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHADOW: &str = "root:*:15887:0:::::\ncore:old:15887:0:99999:7:::\n";

    #[test]
    fn a_hash_changes_in_its_own_line_and_once() {
        let changed = with_hash(SHADOW, "core", "$6$new", Some(20000));
        assert_eq!(changed, "root:*:15887:0:::::\ncore:$6$new:20000:0:99999:7:::\n");
        assert_eq!(with_hash(&changed, "core", "$6$new", Some(30000)), changed, "the same hash is no change");
        assert_eq!(with_hash(SHADOW, "nobody", "x", Some(1)), SHADOW);
    }

    #[test]
    fn what_the_image_ships_is_seen_and_stays_where_it_is() {
        let (etc, shipped) = ("root:x:0:\ncore:x:1000:", "root:x:9:\nwheel:x:10:\nadm:x:4:\n");
        let seen = with_shipped(etc, shipped);
        assert_eq!(seen, "root:x:0:\ncore:x:1000:\nwheel:x:10:\nadm:x:4:\n");
        assert_eq!(without_shipped(&seen, etc, shipped), "root:x:0:\ncore:x:1000:\n");
        let joined = seen.replace("wheel:x:10:", "wheel:x:10:core");
        assert_eq!(without_shipped(&joined, etc, shipped), "root:x:0:\ncore:x:1000:\nwheel:x:10:core\n");
    }

    #[test]
    fn members() {
        let group = "wheel:x:10:a,core\ncore:x:1000:\nadm:x:4:core\nodd:x:5:corex\n";
        assert_eq!(groups_of(group, "core"), ["adm", "wheel"]);
        assert_eq!(field(group, "wheel", 2), Some("10"));
        assert_eq!(field(group, "whee", 2), None);
    }
}
