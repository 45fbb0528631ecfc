//! The `deltaweir` command.

use std::process::ExitCode;

/// glibc's allocator keeps what one thread freed from the others; with many segments going from
/// thread to thread the process would hold several times what it uses.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    deltaweir::cli::main()
}
