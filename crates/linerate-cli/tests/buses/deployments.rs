//! The files in packaging/ that start agents on many machines do what they say: the units of
//! systemd, the Job of Kubernetes, the batch script of Slurm.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use linerate_skips::skip;
use serde_json::Value;

use super::{Program, broker, nats_server};
use crate::common::{measured, nobody};
use crate::serving::serve;

const UNITS: [(&str, &str); 2] = [
    ("linerate.service", include_str!("../../../../packaging/linerate.service")),
    ("linerate-agent.service", include_str!("../../../../packaging/linerate-agent.service")),
];
const MANIFEST: &str = include_str!("../../../../packaging/kubernetes/agents.yaml");
const BATCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/slurm/agents.sbatch");
const OURS: &str = env!("CARGO_BIN_EXE_linerate");

#[test]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in UNITS {
        let unit = folder.path().join(name);
        assert!(text.contains("\nExecStart=/usr/bin/linerate "), "{name}");
        std::fs::write(&unit, text.replace("/usr/bin/linerate", OURS)).unwrap();
        let Ok(output) = Command::new("systemd-analyze").args(["--man=no", "verify"]).arg(&unit).output()
        else {
            return skip("systemd-analyze", "systemd-analyze is not installed");
        };
        // Units of this machine may be at fault; ours is named if it is.
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let ours: Vec<_> = words.lines().filter(|line| line.contains(name)).collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
}

/// A key file is readable for the static user's group, and a wrong configuration ends the service
/// once. AF_XDP and AF_PACKET need more than the units allow.
#[test]
fn the_units_have_a_user_and_no_more_rights_than_they_need() {
    for (name, text) in UNITS {
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{name}: {line}");
        has("User=linerate");
        has("RestartPreventExitStatus=2");
        has("RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK");
        for set in text.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet=")) {
            assert!(["", "CAP_NET_BIND_SERVICE"].contains(&set), "{name}: {set}");
        }
    }
}

/// A word of the agent's unit that `linerate agent` does not take would end the service.
#[test]
fn the_unit_of_the_agent_starts_it_with_the_example_environment() {
    const EXAMPLE: &str = include_str!("../../../../packaging/agent.env");
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let start =
        UNITS[1].1.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/linerate ")).unwrap();
    let variable = |name: &str| EXAMPLE.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    assert_eq!(variable("NATS="), "nats://127.0.0.1:4222");
    let here = start
        .replace("${NATS}", &broker.url)
        .replace("$FLAGS", variable("FLAGS="))
        .replace("%l", "unit")
        .replace("%S", &broker.folder.path().display().to_string());
    std::fs::create_dir(broker.folder.path().join("linerate-agent")).unwrap();
    let mut command = Command::new(OURS);
    command.args(here.split_whitespace());
    Program::start(command).says("waits for runs");
}

/// What Pod Security's profile "restricted" asks of a pod, in the words of its standard.
#[test]
fn the_pods_of_kubernetes_are_restricted() {
    let documents = MANIFEST.split("\n---\n").map(|text| yaml_serde::from_str::<Value>(text).unwrap());
    let pods: Vec<Value> = documents.map(|d| d["spec"]["template"]["spec"].clone()).collect();
    let pods: Vec<&Value> = pods.iter().filter(|pod| pod.is_object()).collect();
    assert_eq!(pods.len(), 2);
    for pod in pods {
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod[field].is_null(), "{field}");
        }
        let of_pod = &pod["securityContext"];
        assert_eq!(
            (&of_pod["runAsNonRoot"], &of_pod["seccompProfile"]["type"]),
            (&true.into(), &"RuntimeDefault".into())
        );
        assert!(of_pod["runAsUser"].as_u64().unwrap() > 0);
        for volume in pod["volumes"].as_array().unwrap() {
            assert!(volume["emptyDir"].is_object(), "{volume}");
        }
        for container in pod["containers"].as_array().unwrap() {
            let of_container = &container["securityContext"];
            assert_eq!(of_container["allowPrivilegeEscalation"], false);
            assert_eq!(of_container["capabilities"], serde_json::json!({"drop": ["ALL"]}));
            assert!(of_container["privileged"].is_null());
        }
    }
}

/// Each index of the Job as a process with the container's own arguments.
#[test]
fn the_job_of_kubernetes_starts_agents_that_take_part() {
    let documents: Vec<Value> =
        MANIFEST.split("\n---\n").map(|text| yaml_serde::from_str(text).unwrap()).collect();
    let kinds: Vec<_> = documents.iter().map(|d| d["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Service", "Deployment", "Job"]);
    let job = &documents[2]["spec"];
    assert_eq!(
        (&job["completionMode"], &job["template"]["spec"]["restartPolicy"]),
        (&"Indexed".into(), &"Never".into())
    );
    let container = &job["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][0]["name"], "INDEX");
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let server = serve(&[]);
    let completions = job["completions"].as_u64().unwrap();
    let agent = |index: u64| {
        let mut command = Command::new(OURS);
        for argument in container["args"].as_array().unwrap() {
            let argument = argument.as_str().unwrap();
            let (flag, value) = argument.split_once('=').unwrap_or((argument, ""));
            // Names and folders of the cluster are here those of this machine.
            let here = match flag {
                "--nats" => broker.url.clone(),
                "--spool" => broker.folder.path().display().to_string(),
                "--allow-target" => "127.0.0.1".to_owned(),
                _ => value.replace("$(INDEX)", &index.to_string()),
            };
            command.arg(if here.is_empty() { flag.to_owned() } else { format!("{flag}={here}") });
        }
        let agent = Program::start(command);
        agent.says("waits for runs");
        agent
    };
    let _agents: Vec<Program> = (0..completions).map(agent).collect();
    let url = format!("http://{}/", server.address);
    let label = "job=linerate-agents";
    let (document, said) = measured(&[
        "--nats",
        &broker.url,
        "--agents",
        label,
        "-c",
        "16",
        "-n",
        "400",
        "--threads",
        "1",
        &url,
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let agents = document["machines"]["agents"].as_array().unwrap();
    let names: Vec<_> = agents.iter().map(|agent| agent["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["agent-0", "agent-1", "agent-2", "agent-3"]);
    assert_eq!(
        (&document["requests"]["answered"], &document["machines"]["complete"]),
        (&400.into(), &true.into())
    );
}

/// The batch script with a `srun` of the test's own: tasks are processes of this machine.
#[test]
fn the_batch_script_of_slurm_runs_a_load() {
    // It hands SIGTERM on, as the real one does.
    const SRUN: &str = "#!/bin/sh\ntrap 'kill $tasks' TERM\nfor i in 0 1 2; do SLURM_PROCID=$i \"$@\" & tasks=\"$tasks $!\"; done\nwait\n";
    let Some(program) = nats_server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("srun", SRUN);
    write("hostname", "#!/bin/sh\necho 127.0.0.1\n");
    std::os::unix::fs::symlink(OURS, folder.path().join("linerate")).unwrap();
    let server = serve(&[]);
    let path = std::env::var("PATH").unwrap_or_default();
    let broker_in = program.parent().unwrap_or(Path::new("/"));
    let output = Command::new("sh")
        .args([BATCH, "-q", "-c", "6", "-n", "300", "--threads", "1", &format!("http://{}/", server.address)])
        .env("PATH", format!("{}:{}:{path}", folder.path().display(), broker_in.display()))
        .envs([("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "3"), ("ALLOW", "127.0.0.0/8")])
        .env("NATS_PORT", nobody().port().to_string())
        .env("SLURM_SUBMIT_DIR", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words}");
    let result = std::fs::read(folder.path().join("linerate-7/result.json")).unwrap();
    let document: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(
        (&document["requests"]["answered"], &document["machines"]["complete"]),
        (&300.into(), &true.into())
    );
}
