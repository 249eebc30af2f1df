//! `oneboot-agent`: a shim over the library.
//! Given the command line; gives an exit code.
//! Never holds logic.

fn main() -> std::process::ExitCode {
    oneboot_firstboot::guard::no_core_dumps();
    oneboot_agent::cli::main()
}
