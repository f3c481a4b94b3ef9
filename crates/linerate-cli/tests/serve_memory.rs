//! What a connection costs in each state, beside nginx: the memory of the process and the kernel's of
//! its sockets. `tests/serving/memory.py` measures it, also with more connections.
#![allow(clippy::unwrap_used)]

#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;
mod real;
mod serving;

use std::process::Command;

use namespaces::Cable;
use serving::transports;

fn measure(kind: &str) {
    if ["nginx", "python3", "ss", "openssl"].iter().any(|program| real::find(program).is_none()) {
        return;
    }
    let mut over = transports();
    over.extend(Cable::new(1).map(|_| "xdp"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serving/memory.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(assert_cmd::cargo::cargo_bin!("linerate"));
    let said = command.args(["--only", kind, "--io", &over.join(",")]).output().unwrap();
    let (table, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    println!("{table}{errors}");
    assert!(said.status.success(), "{errors}");
}

#[test]
fn a_connection_costs_little_in_every_state() {
    measure("clear");
}

#[test]
fn a_connection_over_tls_costs_little_in_every_state() {
    measure("tls");
}
