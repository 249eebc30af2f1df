//! Owns: the exit codes of `oneboot-firstboot` and what each one means; the README's table mirrors this one.
//! Given an `Exit`, gives the number for the process and the name for the report.
//! Never: grows a code that is not in `sysexits.h`, since units and scripts branch on these numbers.

/// How the program ends. The discriminant is the process's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Done, or none of our business.
    Ok = 0,
    /// The command line is wrong.
    Usage = 64,
    /// A document is not what it should be.
    Data = 65,
    /// The server, or the way to it, is not there.
    Unavailable = 69,
    /// A bug in this program.
    Internal = 70,
    /// A local file could not be read or written.
    Io = 74,
    /// The server answers, but not by the rules.
    Protocol = 76,
    /// The token is missing, wrong, expired or of another pool.
    NotPermitted = 77,
    /// The configuration or the trust it describes cannot be used.
    Config = 78,
}

/// Every code with the name used for `class` in the report and its meaning, in numeric order.
pub const TABLE: [(Exit, &str, &str); 9] = [
    (Exit::Ok, "ok", "the config is handed over, or this boot is none of our business"),
    (Exit::Usage, "usage", "the command line is wrong"),
    (
        Exit::Data,
        "data",
        "a document is malformed, of an unsupported spec, too large, or does not match its digest",
    ),
    (Exit::Unavailable, "unavailable", "the server, or the way to it, is not there, or the pool is unknown"),
    (Exit::Internal, "internal", "a bug in this program"),
    (Exit::Io, "io", "a local file could not be read or written"),
    (Exit::Protocol, "protocol", "the server answers, but not by the rules: redirects, or no common spec"),
    (Exit::NotPermitted, "not-permitted", "the token is missing, wrong, expired or of another pool"),
    (Exit::Config, "config", "no CA, no usable trust, or settings that contradict each other"),
];

impl Exit {
    /// The process's exit status.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name that the report uses for `class`.
    pub fn name(self) -> &'static str {
        // The table has every variant, in order; a test holds it to that.
        TABLE.iter().find(|row| row.0 == self).map_or("internal", |row| row.1)
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_row_in_order() {
        let codes: Vec<u8> = TABLE.iter().map(|row| row.0.code()).collect();
        assert_eq!(codes, [0, 64, 65, 69, 70, 74, 76, 77, 78]);
        for row in TABLE {
            assert_eq!(row.0.name(), row.1);
        }
    }
}
