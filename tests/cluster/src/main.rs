//! Arguments -> run -> exit code; everything else is the library's.

use std::process::ExitCode;

fn main() -> ExitCode {
    oneboot_cluster::cli::main()
}
