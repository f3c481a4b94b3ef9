//! Compares a value with a compiled schema.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::value::{JsonNumber, canonical};
use super::{JsonSchema, JsonType, NodeIndex, SchemaRange, SchemaRule, pointer_step};
use crate::limits::{SCHEMA_DEPTH, SCHEMA_PROBLEMS, SCHEMA_STEPS};

/// Characters of a value that are shown.
const SHOWN: usize = 60;

/// A value of the body, and where it is.
#[derive(Clone, Copy)]
struct BodyPlace<'a> {
    value: &'a Value,
    /// The value that it is in, and its name or number there.
    parent: Option<(&'a BodyPlace<'a>, PointerStep<'a>)>,
}

#[derive(Clone, Copy)]
enum PointerStep<'a> {
    Name(&'a str),
    Index(usize),
}

/// Something that is not as the schema wants it.
struct SchemaProblem(String);

/// A body on its way through a schema.
struct SchemaRun<'s> {
    schema: &'s JsonSchema,
    steps: u64,
    depth: usize,
    problems: Vec<SchemaProblem>,
    /// How deep within alternatives, whose problems are not those of the body.
    silent: usize,
    /// Why it ended early.
    gave_up: Option<String>,
}

impl JsonSchema {
    /// What is wrong with a body, if something is: JSON pointers, and what is wanted there.
    pub(crate) fn problem(&self, body: &[u8]) -> Option<String> {
        if body.trim_ascii().is_empty() {
            return Some("the body is empty, and must be JSON".to_owned());
        }
        match serde_json::from_slice(body) {
            Ok(value) => self.problem_of(&value),
            Err(e) => Some(format!("the body is not JSON: {e}")),
        }
    }

    pub(super) fn problem_of(&self, value: &Value) -> Option<String> {
        let mut run =
            SchemaRun { schema: self, steps: 0, depth: 0, problems: Vec::new(), silent: 0, gave_up: None };
        let is_good = run.check(0, &BodyPlace { value, parent: None });
        if let Some(why) = run.gave_up {
            return Some(why);
        }
        let problems: Vec<String> = run.problems.into_iter().map(|problem| problem.0).collect();
        (!is_good).then(|| problems.join("; "))
    }
}

impl<'a> BodyPlace<'a> {
    fn member(&'a self, name: &'a str, value: &'a Value) -> BodyPlace<'a> {
        BodyPlace { value, parent: Some((self, PointerStep::Name(name))) }
    }

    fn item(&'a self, index: usize, value: &'a Value) -> BodyPlace<'a> {
        BodyPlace { value, parent: Some((self, PointerStep::Index(index))) }
    }

    /// Its JSON pointer.
    fn pointer(&self) -> String {
        let mut steps = Vec::new();
        let mut at = self.parent.as_ref();
        while let Some((parent, step)) = at {
            steps.push(match step {
                PointerStep::Name(name) => pointer_step(name),
                PointerStep::Index(index) => index.to_string(),
            });
            at = parent.parent.as_ref();
        }
        steps.iter().rev().flat_map(|step| ["/", step]).collect()
    }

    /// The same for people.
    fn shown(&self) -> String {
        match self.parent {
            None => "the body".to_owned(),
            Some(_) => shortened(&self.pointer(), SHOWN * 2),
        }
    }
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A value for people: what it is, if it is large.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(members) => format!("an object of {}", members.len()),
        Value::String(text) => format!("{:?}", shortened(text, SHOWN)),
        small => small.to_string(),
    }
}

fn is_type(value: &Value, of: JsonType) -> bool {
    match (of, value) {
        (JsonType::Null, Value::Null)
        | (JsonType::Boolean, Value::Bool(_))
        | (JsonType::Object, Value::Object(_))
        | (JsonType::Array, Value::Array(_))
        | (JsonType::Number, Value::Number(_))
        | (JsonType::String, Value::String(_)) => true,
        (JsonType::Integer, Value::Number(number)) => JsonNumber::of(number).is_whole(),
        _ => false,
    }
}

impl<'s> SchemaRun<'s> {
    /// Whether a value is as a node wants it.
    fn check(&mut self, node: NodeIndex, place: &BodyPlace<'_>) -> bool {
        if !self.step() {
            return false;
        }
        if self.depth == SCHEMA_DEPTH {
            self.gave_up =
                Some(format!("more than {SCHEMA_DEPTH} schemas within each other at {}", place.shown()));
            return false;
        }
        self.depth += 1;
        let schema = self.schema;
        let mut is_good = true;
        for rule in &schema.nodes[node].rules {
            is_good &= self.holds(rule, place);
            if !is_good && self.is_enough() {
                break;
            }
        }
        self.depth -= 1;
        is_good
    }

    /// Counts a step; `false`: those were too many.
    fn step(&mut self) -> bool {
        self.steps += 1;
        if self.steps > SCHEMA_STEPS && self.gave_up.is_none() {
            self.gave_up =
                Some(format!("more than {SCHEMA_STEPS} steps to compare the body with the schema"));
        }
        self.gave_up.is_none()
    }

    /// Whether no more problems are looked for.
    fn is_enough(&self) -> bool {
        self.silent > 0 || self.problems.len() >= SCHEMA_PROBLEMS || self.gave_up.is_some()
    }

    fn wrong(&mut self, place: &BodyPlace<'_>, why: impl FnOnce() -> String) -> bool {
        if !self.is_enough() {
            self.problems.push(SchemaProblem(format!("{} {}", place.shown(), why())));
        }
        false
    }

    /// `is_good`, and if not, that the value must be something else.
    fn must(&mut self, is_good: bool, place: &BodyPlace<'_>, what: impl FnOnce() -> String) -> bool {
        is_good || self.wrong(place, || format!("is {}, and must be {}", shown(place.value), what()))
    }

    /// As [`SchemaRun::check`], without a word of what is wrong.
    fn agrees(&mut self, node: NodeIndex, place: &BodyPlace<'_>) -> bool {
        self.silent += 1;
        let is_good = self.check(node, place);
        self.silent -= 1;
        is_good
    }

    fn holds(&mut self, rule: &'s SchemaRule, place: &BodyPlace<'_>) -> bool {
        match rule {
            SchemaRule::Never => self.wrong(place, || "must not be there".to_owned()),
            SchemaRule::Types(types) => {
                let is_good = types.iter().any(|of| is_type(place.value, *of));
                let names = || types.iter().map(|of| of.name()).collect::<Vec<_>>().join(" or ");
                self.must(is_good, place, names)
            }
            SchemaRule::Values(values, shown) => {
                self.must(values.contains(&canonical(place.value)), place, || shown.clone())
            }
            SchemaRule::Ref(node) => self.check(*node, place),
            SchemaRule::All(nodes) => self.all(nodes, place),
            SchemaRule::Any(nodes) => {
                let is_good = nodes.iter().any(|node| self.agrees(*node, place));
                is_good || self.of_none("anyOf", nodes, place)
            }
            SchemaRule::One(nodes) => self.one(nodes, place),
            SchemaRule::Not(node) => {
                let is_good = !self.agrees(*node, place) && self.gave_up.is_none();
                is_good || self.wrong(place, || format!("is {}, which not excludes", shown(place.value)))
            }
            SchemaRule::If { test, good, otherwise } => {
                let then = if self.agrees(*test, place) { good } else { otherwise };
                then.is_none_or(|node| self.check(node, place))
            }
            _ => match place.value {
                Value::Number(number) => self.number(rule, JsonNumber::of(number), place),
                Value::String(text) => self.text(rule, text, place),
                Value::Array(items) => self.array(rule, items, place),
                Value::Object(members) => self.object(rule, members, place),
                Value::Null | Value::Bool(_) => true,
            },
        }
    }

    fn all(&mut self, nodes: &[NodeIndex], place: &BodyPlace<'_>) -> bool {
        let mut is_good = true;
        for node in nodes {
            is_good &= self.check(*node, place);
            if !is_good && self.is_enough() {
                break;
            }
        }
        is_good
    }

    fn one(&mut self, nodes: &[NodeIndex], place: &BodyPlace<'_>) -> bool {
        let mut agreeing = nodes.iter().enumerate().filter(|(_, node)| self.agrees(**node, place));
        let found = (agreeing.next(), agreeing.next());
        match found {
            (Some(_), None) => true,
            (Some((first, _)), Some((second, _))) => self.wrong(place, || {
                format!("agrees with schemas {first} and {second} of oneOf, and must with one alone")
            }),
            (None, _) => self.of_none("oneOf", nodes, place),
        }
    }

    /// It agrees with none of several schemas. Of one alone, why is said.
    fn of_none(&mut self, keyword: &str, nodes: &[NodeIndex], place: &BodyPlace<'_>) -> bool {
        match nodes {
            [node] => self.check(*node, place),
            _ => self.wrong(place, || {
                format!(
                    "is {}, and agrees with none of the {} schemas of {keyword}",
                    shown(place.value),
                    nodes.len()
                )
            }),
        }
    }

    fn number(&mut self, rule: &SchemaRule, number: JsonNumber, place: &BodyPlace<'_>) -> bool {
        use Ordering::{Greater, Less};
        let (is_good, what, bound) = match rule {
            SchemaRule::Least(least, bound) => (number.compare(*least) != Some(Less), "at least", bound),
            SchemaRule::Most(most, bound) => (number.compare(*most) != Some(Greater), "at most", bound),
            SchemaRule::Above(least, bound) => {
                (number.compare(*least) == Some(Greater), "greater than", bound)
            }
            SchemaRule::Below(most, bound) => (number.compare(*most) == Some(Less), "less than", bound),
            SchemaRule::MultipleOf(of, bound) => (number.is_multiple_of(*of), "a multiple of", bound),
            _ => return true,
        };
        self.must(is_good, place, || format!("{what} {bound}"))
    }

    fn text(&mut self, rule: &SchemaRule, text: &str, place: &BodyPlace<'_>) -> bool {
        match rule {
            SchemaRule::Length(range) => {
                let length = text.chars().count();
                range.holds(length) || self.count(*range, length, "characters", place)
            }
            SchemaRule::Pattern(pattern, written) => {
                let is_good = pattern.is_match(text.as_bytes());
                is_good
                    || self.wrong(place, || format!("is {}, and must match {written:?}", shown(place.value)))
            }
            _ => true,
        }
    }

    fn count(&mut self, range: SchemaRange, count: usize, things: &str, place: &BodyPlace<'_>) -> bool {
        self.wrong(place, || format!("has {count} {things}, and must have {}", range.shown(things)))
    }

    fn array(&mut self, rule: &'s SchemaRule, items: &[Value], place: &BodyPlace<'_>) -> bool {
        match rule {
            SchemaRule::Items { first, rest } => {
                let mut is_good = true;
                for (index, item) in items.iter().enumerate() {
                    let Some(node) = first.get(index).or(rest.as_ref()) else { break };
                    is_good &= self.check(*node, &place.item(index, item));
                    if !is_good && self.is_enough() {
                        break;
                    }
                }
                is_good
            }
            SchemaRule::Count(range) => {
                range.holds(items.len()) || self.count(*range, items.len(), "items", place)
            }
            SchemaRule::Unique => {
                let mut seen = HashSet::new();
                let twice = items.iter().position(|item| !self.step() || !seen.insert(canonical(item)));
                twice.is_none_or(|index| {
                    self.wrong(place, || format!("must have no item twice, and item {index} is there before"))
                })
            }
            SchemaRule::Contains { schema, range } => {
                let mut found = 0;
                // Without a limit, no more than the least have to be found.
                let enough = range.most.map_or(range.least, |most| most.saturating_add(1)) as usize;
                for (index, item) in items.iter().enumerate() {
                    if found >= enough {
                        break;
                    }
                    found += usize::from(self.agrees(*schema, &place.item(index, item)));
                }
                range.holds(found) || self.count(*range, found, "items that contains describes", place)
            }
            _ => true,
        }
    }

    fn object(&mut self, rule: &'s SchemaRule, members: &Map<String, Value>, place: &BodyPlace<'_>) -> bool {
        match rule {
            SchemaRule::Members { .. } => self.members(rule, members, place),
            SchemaRule::Required(names) => self.required(names, members, place),
            SchemaRule::MemberCount(range) => {
                range.holds(members.len()) || self.count(*range, members.len(), "members", place)
            }
            SchemaRule::Names(node) => {
                let bad = members.keys().find(|name| {
                    let name = Value::String((*name).clone());
                    !self.agrees(*node, &BodyPlace { value: &name, parent: None })
                });
                bad.is_none_or(|name| {
                    let name = shortened(name, SHOWN);
                    self.wrong(place, || format!("has a member {name:?}, whose name propertyNames excludes"))
                })
            }
            SchemaRule::RequiredWith(name, names) => {
                !members.contains_key(name) || self.required(names, members, place)
            }
            SchemaRule::SchemaWith(name, node) => !members.contains_key(name) || self.check(*node, place),
            _ => true,
        }
    }

    fn required(&mut self, names: &[String], members: &Map<String, Value>, place: &BodyPlace<'_>) -> bool {
        let missing = names.iter().find(|name| !members.contains_key(*name));
        missing.is_none_or(|name| self.wrong(place, || format!("has no member {name:?}, which is required")))
    }

    fn members(&mut self, rule: &'s SchemaRule, members: &Map<String, Value>, place: &BodyPlace<'_>) -> bool {
        let SchemaRule::Members { named, patterns, others } = rule else { return true };
        let mut is_good = true;
        for (name, value) in members {
            let member = place.member(name, value);
            let mut is_other = true;
            if let Some(node) = named.get(name) {
                is_other = false;
                is_good &= self.check(*node, &member);
            }
            for (pattern, node) in patterns {
                if self.step() && pattern.is_match(name.as_bytes()) {
                    is_other = false;
                    is_good &= self.check(*node, &member);
                }
            }
            if let (true, Some(node)) = (is_other, others) {
                is_good &= self.check(*node, &member);
            }
            if !is_good && self.is_enough() {
                break;
            }
        }
        is_good
    }
}
