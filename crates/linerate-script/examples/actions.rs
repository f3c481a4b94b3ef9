//! What a script wants, one thing after the other, without a network: each request gets a 200.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use linerate_base::Time;
use linerate_script::{
    RunFacts, RunMetrics, ScriptCall, ScriptFiles, ScriptHost, ScriptProgram, ScriptUser, UserAction,
    UserReply, UserResponse,
};

const SCRIPT: &str = "
import http from 'k6/http';
import { check, sleep } from 'k6';

export default function () {
  const res = http.post('http://shop.test/login', { user: 'ada' });
  check(res, { 'is 200': (r) => r.status === 200 });
  sleep(1);
  http.get('http://shop.test/items/7');
}";

struct ScriptInMemory;

impl ScriptFiles for ScriptInMemory {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == "/script.js" { Ok(SCRIPT.into()) } else { Err("no such file".to_owned()) }
    }
}

/// Time goes on as the script sleeps.
struct VirtualTime(Cell<Time>);

impl ScriptHost for VirtualTime {
    fn now(&self) -> Time {
        self.0.get()
    }
    fn log(&self, level: &str, text: &str) {
        println!("{level}: {text}");
    }
    fn facts(&self) -> RunFacts {
        RunFacts::default()
    }
    fn fail(&self, reason: &str) {
        println!("failed: {reason}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = Arc::new(ScriptProgram::new("/script.js", Vec::new(), Box::new(ScriptInMemory)));
    let metrics = Arc::new(Mutex::new(RunMetrics::new(&[])));
    let host = Rc::new(VirtualTime(Cell::new(Time::ZERO)));
    let (mut user, exports) =
        ScriptUser::load(program, Rc::clone(&host) as Rc<dyn ScriptHost>, Arc::clone(&metrics), 1)?;
    println!("functions: {}", exports.functions.join(", "));
    let mut reply = UserReply::Call(ScriptCall { function: "default".to_owned(), ..ScriptCall::default() });
    loop {
        reply = match user.resume(reply) {
            UserAction::Send(batch) => {
                let answer = |request: linerate_script::UserRequest| {
                    println!("{} {}", request.method, request.url);
                    (request, UserResponse { status: 200, ..UserResponse::default() })
                };
                UserReply::Responses(batch.requests.into_iter().map(answer).collect())
            }
            UserAction::Sleep(time) => {
                println!("sleeps {time:?}");
                host.0.set(host.0.get() + time);
                UserReply::Slept
            }
            UserAction::Ended(end) => {
                println!("ended: {end:?}");
                break;
            }
        };
    }
    for check in metrics.lock().map_err(|_| "a user panicked")?.checks() {
        println!("check {:?}: {} of {} held", check.name, check.passes, check.passes + check.fails);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_runs() {
        super::main().unwrap();
    }
}
