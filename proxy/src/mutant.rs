//! `deltaweir` with a deliberate bug: the campaigns run against it to see that they would notice.

#[cfg(not(debug_assertions))]
compile_error!("mutants are for tests; they are not built with --release");

use std::process::ExitCode;

fn main() -> ExitCode {
    deltaweir::engine::stale::switch_on();
    deltaweir::cli::main()
}
