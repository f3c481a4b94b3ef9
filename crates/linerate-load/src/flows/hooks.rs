//! What the script of a plan makes of requests, and says of responses. No I/O, no clock.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::hooks::{self, RequestHooks};
use crate::limits::MADE_BYTES;
use crate::plan::flow::{MADE_SLOT, SIGN_PREFIX, StepHooks};
use crate::plan::{Plan, env};

/// The script of a plan in one thread, and what steps want of it.
#[derive(Debug)]
pub(crate) struct FlowHooks {
    script: RefCell<Box<dyn RequestHooks>>,
    /// By request of the plan: its name, and its functions.
    steps: Vec<(String, StepHooks)>,
    /// Cells that are made for a request: its body, then what signing gives.
    columns: Vec<String>,
    /// Names of the cells that scripts see.
    names: Vec<String>,
}

/// A request of a user, before and after its script has seen it.
#[derive(Debug)]
pub(crate) struct HookedRequest<'a> {
    /// The request of the plan.
    pub(crate) request: usize,
    /// Its number in the run.
    pub(crate) number: u64,
    /// Data and values.
    pub(crate) cells: &'a [Box<[u8]>],
}

/// A response, as its script sees it.
#[derive(Debug)]
pub(crate) struct HookedResponse<'a> {
    pub(crate) status: u16,
    pub(crate) fields: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

impl FlowHooks {
    /// Loads the script of a plan; `None`: it has none. `names`: of all cells before those that are made.
    ///
    /// # Errors
    /// The script cannot be loaded, or has no function of a name.
    pub(crate) fn load(plan: &Plan, names: Vec<String>) -> Result<Option<FlowHooks>, String> {
        let Some((flows, script)) = plan.flows.as_ref().and_then(|f| Some((f, f.script.as_ref()?))) else {
            return Ok(None);
        };
        let name = |request: &crate::plan::Request| (request.name.clone(), StepHooks::default());
        let mut steps: Vec<_> = plan.requests.iter().map(name).collect();
        for step in flows.flows.iter().flat_map(|flow| &flow.steps) {
            if let Some((_, hooks)) = steps.get_mut(step.request as usize) {
                hooks.clone_from(&step.hooks);
            }
        }
        let functions: Vec<&str> = steps.iter().flat_map(|(_, hooks)| hooks.functions()).collect();
        let env = plan.data.iter().find(|set| set.name == env::NAME);
        let env = env.into_iter().flat_map(|set| set.columns.iter().zip(set.rows.iter().flatten()));
        let env: Vec<(String, String)> = env.map(|(name, value)| (name.clone(), value.clone())).collect();
        let script = RefCell::new(hooks::load(script, &env, &functions)?);
        Ok(Some(FlowHooks { script, steps, columns: flows.made_columns(), names }))
    }

    /// How long the script has run.
    pub(crate) fn spent(&self) -> Duration {
        self.script.borrow().spent()
    }

    /// What a request and its response have in common.
    fn about(&self, of: &HookedRequest<'_>) -> Map<String, Value> {
        let text = |cell: &[u8]| Value::from(String::from_utf8_lossy(cell));
        let cells = self.names.iter().zip(of.cells).filter(|(name, _)| !name.starts_with("env."));
        let values: Map<String, Value> = cells.map(|(name, cell)| (name.clone(), text(cell))).collect();
        let mut about = Map::new();
        about.insert("step".to_owned(), self.steps[of.request].0.clone().into());
        about.insert("number".to_owned(), of.number.into());
        about.insert("values".to_owned(), values.into());
        about
    }

    fn call(&self, function: &str, about: Map<String, Value>) -> Result<Option<Value>, String> {
        let argument = Value::from(about).to_string();
        let returned = self.script.borrow_mut().call(function, &argument)?;
        let read = |text: String| serde_json::from_str(&text).map_err(|e| format!("{function}: {e}"));
        returned.map(read).transpose()
    }

    /// Cells for a request. `render`: its bytes with these cells, as HTTP/1.1 writes them.
    ///
    /// # Errors
    /// Why its script cannot make them.
    pub(crate) fn make(
        &self,
        of: &HookedRequest<'_>,
        render: impl FnOnce(&[Box<[u8]>]) -> Vec<u8>,
    ) -> Result<Vec<Box<[u8]>>, String> {
        let mut made: Vec<Box<[u8]>> = vec![Box::default(); self.columns.len()];
        let Some((_, step)) = self.steps.get(of.request).filter(|(_, step)| step.changes()) else {
            return Ok(made);
        };
        if let Some(function) = &step.body {
            let body = match self.call(function, self.about(of))? {
                Some(Value::String(text)) => text,
                Some(Value::Null) | None => return Err(format!("{function} returned no body")),
                Some(json) => json.to_string(),
            };
            self.fill(&mut made, MADE_SLOT, body).map_err(|why| format!("{function}: {why}"))?;
        }
        if let Some(function) = &step.sign {
            let mut about = self.about(of);
            add_request(&mut about, &render(&made)).map_err(|why| format!("{function}: {why}"))?;
            let Some(Value::Object(signed)) = self.call(function, about)? else {
                return Err(format!("{function} must return an object, such as {{ signature: \"...\" }}"));
            };
            let own = |(name, value): (String, Value)| (format!("{SIGN_PREFIX}{name}"), value);
            let signed: Map<String, Value> = signed.into_iter().map(own).collect();
            let wanted = self.columns.iter().filter(|column| step.uses.contains(column));
            for column in wanted {
                let text = match signed.get(column) {
                    Some(Value::String(text)) => text.clone(),
                    Some(number @ (Value::Number(_) | Value::Bool(_))) => number.to_string(),
                    _ => {
                        let name = column.strip_prefix(SIGN_PREFIX).unwrap_or(column);
                        return Err(format!("{function} returned no text {name:?} for {{{{{column}}}}}"));
                    }
                };
                self.fill(&mut made, column, text).map_err(|why| format!("{function}: {why}"))?;
            }
        }
        Ok(made)
    }

    fn fill(&self, made: &mut [Box<[u8]>], column: &str, text: String) -> Result<(), String> {
        if text.len() > MADE_BYTES {
            return Err(format!("it returned more than {} MiB", MADE_BYTES >> 20));
        }
        let place = self.columns.iter().position(|known| known == column);
        if let Some(cell) = place.and_then(|place| made.get_mut(place)) {
            *cell = text.into_bytes().into();
        }
        Ok(())
    }

    /// What a script finds wrong with a response, if something.
    pub(crate) fn judge(&self, of: &HookedRequest<'_>, response: &HookedResponse<'_>) -> Option<String> {
        let function = self.steps.get(of.request)?.1.judge.as_ref()?;
        let mut about = self.about(of);
        about.insert("status".to_owned(), response.status.into());
        about.insert("headers".to_owned(), fields(response.fields.iter().cloned()));
        about.insert("body".to_owned(), String::from_utf8_lossy(response.body).into());
        match self.call(function, about) {
            Ok(None | Some(Value::Bool(true) | Value::Null)) => None,
            Ok(Some(Value::Bool(false))) => Some(format!("{function}: it returned false")),
            Ok(Some(Value::String(why))) => Some(format!("{function}: {why}")),
            Ok(Some(other)) => {
                Some(format!("{function}: it must return true, false or what is wrong, not {}", kind(&other)))
            }
            Err(why) => Some(why),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    if value.is_number() { "a number" } else { "an object" }
}

/// Fields by their names in small letters; those of one name are joined.
fn fields(all: impl Iterator<Item = (String, String)>) -> Value {
    let mut joined = Map::new();
    for (name, value) in all {
        let name = name.to_ascii_lowercase();
        let whole = match joined.get(&name) {
            Some(Value::String(before)) => format!("{before}, {value}"),
            _ => value,
        };
        joined.insert(name, whole.into());
    }
    joined.into()
}

/// Adds the parts of a rendered request.
fn add_request(about: &mut Map<String, Value>, bytes: &[u8]) -> Result<(), String> {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..end]);
    let body = std::str::from_utf8(bytes.get(end + 4..).unwrap_or_default())
        .map_err(|_| "the body is not text, and scripts get text alone".to_owned())?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let lines = lines.filter_map(|line| line.split_once(':'));
    let lines = lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    for (name, value) in [
        ("method", json!(method)),
        ("path", json!(target)),
        ("headers", fields(lines)),
        ("body", json!(body)),
    ] {
        about.insert(name.to_owned(), value);
    }
    Ok(())
}
