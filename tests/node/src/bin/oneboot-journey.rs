//! The demo, once the programs are built: arguments -> run -> exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    oneboot_node::demo::main(std::env::args_os().collect())
}
