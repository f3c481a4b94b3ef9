//! `linerate wrk`, `ab` and `hey`: their command lines, as flags of `linerate load`.

use clap::Args;

/// Run a command line of wrk or wrk2: linerate wrk -t 2 -c 100 -d 30s http://127.0.0.1:8080/
#[derive(Args, Clone, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = "Example:\n  linerate wrk -t2 -c100 -d30s --latency http://127.0.0.1:8080/"
)]
pub(crate) struct WrkArgs {
    /// Flags of wrk, and the URL
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) words: Vec<String>,
}

/// Run a command line of ab: linerate ab -k -n 10000 -c 100 http://127.0.0.1:8080/
#[derive(Args, Clone, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = "Example:\n  linerate ab -k -n 10000 -c 100 http://127.0.0.1:8080/"
)]
pub(crate) struct AbArgs {
    /// Flags of ab, and the URL
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) words: Vec<String>,
}

/// Run a command line of hey: linerate hey -z 10s -c 100 http://127.0.0.1:8080/
#[derive(Args, Clone, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = "Example:\n  linerate hey -z 10s -c 100 http://127.0.0.1:8080/"
)]
pub(crate) struct HeyArgs {
    /// Flags of hey, and the URL
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) words: Vec<String>,
}
