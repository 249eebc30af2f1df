//! Owns: what the kernel's arguments say to us.
//! Given the text of `/proc/cmdline`, gives the few arguments that matter; the last of a name wins.
//! Never: takes a token from them, since every user can read them; finding one is an error of its own.

/// The arguments that matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arguments {
    /// `oneboot.url=`
    pub url: Option<String>,
    /// `oneboot.pointer=`
    pub pointer: Option<String>,
    /// Names of other `oneboot.*` arguments.
    pub unknown: Vec<String>,
    /// Any `oneboot.*` argument at all.
    pub any: bool,
    /// The name of the argument that holds a token, never its value.
    pub token: Option<&'static str>,
    /// `ignition.config.url=` is there.
    pub ignition_url: bool,
    /// `ignition.platform.id=`
    pub platform: Option<String>,
}

/// Arguments by which a credential of ours would arrive, in plain sight of every user.
const SET_CREDENTIAL: [&str; 2] = ["systemd.set_credential", "systemd.set_credential_binary"];

/// Reads the arguments.
pub fn parse(text: &str) -> Arguments {
    let mut arguments = Arguments::default();
    for word in words(text) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        match (name, value) {
            ("oneboot.url", Some(value)) => {
                arguments.url = Some(value.to_owned());
                if value.split(['?', '&']).skip(1).any(|pair| pair.starts_with("token=")) {
                    arguments.token = Some("oneboot.url=...?token=");
                }
            }
            ("oneboot.pointer", Some(value)) => arguments.pointer = Some(value.to_owned()),
            ("oneboot.token", _) => arguments.token = Some("oneboot.token="),
            ("ignition.config.url", Some(_)) => arguments.ignition_url = true,
            ("ignition.platform.id", Some(value)) => arguments.platform = Some(value.to_owned()),
            (name, Some(value)) if SET_CREDENTIAL.contains(&name) && value.starts_with("oneboot.token:") => {
                arguments.token = Some("systemd.set_credential=oneboot.token:");
            }
            (name, _) if name.starts_with("oneboot.") => arguments.unknown.push(name.to_owned()),
            _ => {}
        }
        arguments.any |= name.starts_with("oneboot.");
    }
    arguments
}

/// As the kernel splits them: white space, except inside double quotes, which go away.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => words.push(String::new()),
            c => words.last_mut().expect("it starts with one word and only grows").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_first_boot_says_nothing_to_us() {
        let arguments =
            parse("BOOT_IMAGE=(hd0,3)/vmlinuz rw ignition.firstboot ignition.platform.id=metal\n");
        assert_eq!(arguments, Arguments { platform: Some("metal".into()), ..Arguments::default() });
    }

    #[test]
    fn the_last_of_a_name_wins_and_quotes_are_the_kernels() {
        let arguments =
            parse("oneboot.url=https://a/ \"oneboot.url=https://b/ c\" oneboot.pointer=/p oneboot.x");
        assert_eq!(arguments.url.as_deref(), Some("https://b/ c"));
        assert_eq!(arguments.pointer.as_deref(), Some("/p"));
        assert_eq!(arguments.unknown, ["oneboot.x"]);
        assert!(arguments.any && arguments.token.is_none());
    }

    #[test]
    fn every_way_to_put_a_token_there_is_noticed() {
        for text in [
            "oneboot.token=t",
            "systemd.set_credential=oneboot.token:t",
            "systemd.set_credential_binary=oneboot.token:dA==",
            "oneboot.url=https://h/config/worker?token=t",
            "oneboot.url=https://h/config/worker?a=1&token=t",
        ] {
            assert!(parse(text).token.is_some(), "{text}");
        }
        assert_eq!(parse("systemd.set_credential=other:t oneboot.url=https://h/token=").token, None);
    }
}
