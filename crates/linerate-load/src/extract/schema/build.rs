//! Compiles a schema, or says which of its keywords cannot be.

use std::collections::{HashMap, HashSet};

use linerate_client::route::decode_percent;
use serde_json::{Map, Value};

use super::value::{JsonNumber, canonical, translated};
use super::{JsonSchema, JsonType, NodeIndex, SchemaNode, SchemaRange, SchemaRule, pointer_step};
use crate::extract::take::regex;
use crate::limits::{SCHEMA_BYTES, SCHEMA_IN_PLACE, SCHEMA_NODES, SCHEMA_POINTER_BYTES};

/// Keywords that say something about a schema or a value, and ask for nothing.
const ANNOTATIONS: [&str; 17] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "example",
    "examples",
    "format",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
];

/// Keywords that are one rule together.
const TOGETHER: [&[&str]; 5] = [
    &["minLength", "maxLength"],
    &["minItems", "maxItems"],
    &["minProperties", "maxProperties"],
    &["prefixItems", "items", "additionalItems"],
    &["properties", "patternProperties", "additionalProperties"],
];

/// Keywords that ask for nothing without another one, which reads them.
const COMPANIONS: [&str; 4] = ["then", "else", "minContains", "maxContains"];

/// Keywords of which there is more to say than that they are unknown.
const REFUSED: [(&str, &str); 11] = [
    ("unevaluatedProperties", "is not supported; list the properties, and write additionalProperties"),
    ("unevaluatedItems", "is not supported; write items beside prefixItems"),
    ("$dynamicRef", "is not supported; write $ref"),
    ("$dynamicAnchor", "is not supported; write $ref with a JSON pointer"),
    ("$recursiveRef", "is not supported; write $ref"),
    ("$recursiveAnchor", "is not supported; write $ref with a JSON pointer"),
    ("$anchor", "is not supported; write $ref with a JSON pointer such as #/$defs/name"),
    ("$vocabulary", "is not supported: it belongs into meta-schemas"),
    ("id", "is not supported: since draft-06 it is $id"),
    ("nullable", "is OpenAPI's, not JSON Schema's; write type = [\"string\", \"null\"]"),
    ("discriminator", "is OpenAPI's, not JSON Schema's; write oneOf or if/then/else"),
];

/// What a schema says, as it is compiled.
struct SchemaBuilder<'a> {
    root: &'a Value,
    /// The root's `$id`.
    id: Option<&'a str>,
    dialect: SchemaDialect,
    nodes: Vec<SchemaNode>,
    /// Nodes by their JSON pointers.
    known: HashMap<String, NodeIndex>,
    pending: Vec<(String, &'a Value, NodeIndex)>,
}

/// What the versions of JSON Schema differ in here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaDialect {
    /// Keywords beside `$ref` ask for nothing.
    Draft7,
    Draft2019,
    /// An array of items is `prefixItems`.
    Draft2020,
    /// It does not say.
    Unsaid,
}

/// A schema while its keywords are read.
struct SchemaPlace<'a, 'k> {
    at: &'k str,
    object: &'a Map<String, Value>,
}

impl JsonSchema {
    /// Compiles the text of a schema.
    ///
    /// # Errors
    /// The place in the schema, and what would be right.
    pub(crate) fn parse(text: &str) -> Result<JsonSchema, String> {
        if text.len() > SCHEMA_BYTES {
            return Err(format!("it is larger than {} MiB, the most of a schema", SCHEMA_BYTES >> 20));
        }
        let root: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
        let id = root.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#'));
        let mut builder = SchemaBuilder {
            dialect: dialect(&root)?,
            root: &root,
            id,
            nodes: Vec::new(),
            known: HashMap::new(),
            pending: Vec::new(),
        };
        builder.node(String::new(), &root)?;
        while let Some((at, value, index)) = builder.pending.pop() {
            builder.nodes[index].rules = builder.rules(&at, value)?;
        }
        builder.check_loops()?;
        Ok(JsonSchema { nodes: builder.nodes })
    }
}

fn dialect(root: &Value) -> Result<SchemaDialect, String> {
    const KNOWN: &str =
        "\"https://json-schema.org/draft/2020-12/schema\" or \"http://json-schema.org/draft-07/schema#\"";
    let Some(named) = root.get("$schema") else { return Ok(SchemaDialect::Unsaid) };
    let name = named.as_str().unwrap_or_default();
    let (_, version) = name.trim_end_matches('#').split_once("://json-schema.org/").unwrap_or_default();
    match version {
        "draft/2020-12/schema" => Ok(SchemaDialect::Draft2020),
        "draft/2019-09/schema" => Ok(SchemaDialect::Draft2019),
        "draft-07/schema" | "draft-06/schema" => Ok(SchemaDialect::Draft7),
        _ => Err(format!("#/$schema: {named} is not supported; write {KNOWN}")),
    }
}

fn wrong(at: &str, key: &str, why: impl std::fmt::Display) -> String {
    format!("#{at}/{}: {why}", pointer_step(key))
}

fn below(at: &str, key: &str, step: impl std::fmt::Display) -> String {
    format!("{at}/{}/{}", pointer_step(key), pointer_step(&step.to_string()))
}

impl<'a> SchemaPlace<'a, '_> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key)
    }

    fn wrong(&self, key: &str, why: impl std::fmt::Display) -> String {
        wrong(self.at, key, why)
    }

    fn array(&self, key: &str) -> Result<&'a [Value], String> {
        let array = self.get(key).and_then(Value::as_array);
        array.map(Vec::as_slice).ok_or_else(|| self.wrong(key, "must be an array"))
    }

    fn object(&self, key: &str) -> Result<&'a Map<String, Value>, String> {
        self.get(key).and_then(Value::as_object).ok_or_else(|| self.wrong(key, "must be an object"))
    }

    fn text(&self, key: &str) -> Result<&'a str, String> {
        self.get(key).and_then(Value::as_str).ok_or_else(|| self.wrong(key, "must be a string"))
    }

    fn count(&self, key: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_number().map(JsonNumber::of);
        match number {
            Some(JsonNumber::Whole(whole)) if whole >= 0 => {
                Ok(Some(u64::try_from(whole).unwrap_or(u64::MAX)))
            }
            _ => Err(self.wrong(key, "must be a whole number of at least 0")),
        }
    }

    fn range(&self, least: &str, most: &str) -> Result<SchemaRange, String> {
        Ok(SchemaRange { least: self.count(least)?.unwrap_or(0), most: self.count(most)? })
    }

    /// A bound of numbers, and as it is written.
    fn bound(&self, key: &str) -> Result<(JsonNumber, String), String> {
        match self.get(key) {
            Some(Value::Number(number)) => Ok((JsonNumber::of(number), number.to_string())),
            Some(Value::Bool(_)) => {
                Err(self.wrong(key, "must be a number, as since draft-06, not a boolean"))
            }
            _ => Err(self.wrong(key, "must be a number")),
        }
    }

    fn names(&self, key: &str, value: &Value) -> Result<Vec<String>, String> {
        let names = value.as_array().and_then(|names| {
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        names.ok_or_else(|| self.wrong(key, "must be an array of strings"))
    }
}

impl<'a> SchemaBuilder<'a> {
    /// The node of a schema at a JSON pointer.
    fn node(&mut self, at: String, value: &'a Value) -> Result<NodeIndex, String> {
        if let Some(index) = self.known.get(&at) {
            return Ok(*index);
        }
        if at.len() > SCHEMA_POINTER_BYTES {
            let start: String = at.chars().take(60).collect();
            return Err(format!(
                "{start}...: the names up to here have more than {SCHEMA_POINTER_BYTES} bytes"
            ));
        }
        if self.nodes.len() == SCHEMA_NODES {
            return Err(format!("#{at}: there are more than {SCHEMA_NODES} schemas in it"));
        }
        let index = self.nodes.len();
        self.nodes.push(SchemaNode::default());
        self.known.insert(at.clone(), index);
        self.pending.push((at, value, index));
        Ok(index)
    }

    fn rules(&mut self, at: &str, value: &'a Value) -> Result<Vec<SchemaRule>, String> {
        let object = match value {
            Value::Bool(true) => return Ok(Vec::new()),
            Value::Bool(false) => return Ok(vec![SchemaRule::Never]),
            Value::Object(object) => object,
            _ => return Err(format!("#{at}: a schema is an object, true or false")),
        };
        let place = SchemaPlace { at, object };
        if self.dialect == SchemaDialect::Draft7 && object.contains_key("$ref") {
            return Ok(vec![self.reference(&place)?]);
        }
        if !at.is_empty() && object.contains_key("$id") {
            return Err(place.wrong("$id", "is not supported below the root: it changes what $ref leads to"));
        }
        let mut rules = Vec::new();
        for key in object.keys() {
            self.read(&place, key, &mut rules)?;
        }
        // Cheap ones that most often fail come first, and with them their messages.
        rules.sort_by_key(|rule| !matches!(rule, SchemaRule::Types(_) | SchemaRule::Required(_)));
        Ok(rules)
    }

    /// Reads one keyword, with those that belong to it.
    fn read(
        &mut self,
        place: &SchemaPlace<'a, '_>,
        key: &str,
        rules: &mut Vec<SchemaRule>,
    ) -> Result<(), String> {
        let group = TOGETHER.iter().find(|group| group.contains(&key));
        let first = group.and_then(|group| group.iter().find(|key| place.get(key).is_some()));
        if first.is_some_and(|first| *first != key) {
            return Ok(());
        }
        let rule = match key {
            "$ref" => self.reference(place)?,
            "type" => SchemaRule::Types(types(place)?),
            "enum" => values(place.array(key)?),
            "const" => values(place.get(key).map(std::slice::from_ref).unwrap_or_default()),
            "minimum" => bound(place, key, SchemaRule::Least)?,
            "maximum" => bound(place, key, SchemaRule::Most)?,
            "exclusiveMinimum" => bound(place, key, SchemaRule::Above)?,
            "exclusiveMaximum" => bound(place, key, SchemaRule::Below)?,
            "multipleOf" => multiple(place)?,
            "minLength" | "maxLength" => SchemaRule::Length(place.range("minLength", "maxLength")?),
            "minItems" | "maxItems" => SchemaRule::Count(place.range("minItems", "maxItems")?),
            "minProperties" | "maxProperties" => {
                SchemaRule::MemberCount(place.range("minProperties", "maxProperties")?)
            }
            "pattern" => {
                let pattern = place.text(key)?;
                let built = regex(&translated(pattern)).map_err(|why| place.wrong(key, why))?;
                SchemaRule::Pattern(built, pattern.to_owned())
            }
            "uniqueItems" => match place.get(key) {
                Some(Value::Bool(true)) => SchemaRule::Unique,
                Some(Value::Bool(false)) => return Ok(()),
                _ => return Err(place.wrong(key, "must be true or false")),
            },
            "items" | "prefixItems" | "additionalItems" => self.items(place)?,
            "contains" => self.contains(place)?,
            "properties" | "patternProperties" | "additionalProperties" => self.members(place)?,
            "required" => SchemaRule::Required(place.names(key, place.get(key).unwrap_or(&Value::Null))?),
            "propertyNames" => SchemaRule::Names(self.child(place, key)?),
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                return self.dependencies(place, key, rules);
            }
            "allOf" => SchemaRule::All(self.children(place, key)?),
            "anyOf" => SchemaRule::Any(self.children(place, key)?),
            "oneOf" => SchemaRule::One(self.children(place, key)?),
            "not" => SchemaRule::Not(self.child(place, key)?),
            "if" => SchemaRule::If {
                test: self.child(place, key)?,
                good: place.get("then").map(|_| self.child(place, "then")).transpose()?,
                otherwise: place.get("else").map(|_| self.child(place, "else")).transpose()?,
            },
            _ => return self.asks_nothing(place, key),
        };
        rules.push(rule);
        Ok(())
    }

    /// A keyword that is no rule: known and without effect, or refused.
    fn asks_nothing(&self, place: &SchemaPlace<'a, '_>, key: &str) -> Result<(), String> {
        if ANNOTATIONS.contains(&key) || COMPANIONS.contains(&key) || key.starts_with("x-") {
            return Ok(());
        }
        let why = REFUSED.iter().find(|(refused, _)| *refused == key).map(|(_, why)| *why);
        Err(place
            .wrong(key, why.unwrap_or("is no keyword that is known here; names of your own begin with x-")))
    }

    fn child(&mut self, place: &SchemaPlace<'a, '_>, key: &str) -> Result<NodeIndex, String> {
        let value = place.get(key).ok_or_else(|| place.wrong(key, "is missing"))?;
        self.node(format!("{}/{}", place.at, pointer_step(key)), value)
    }

    /// The schemas of an array.
    fn children(&mut self, place: &SchemaPlace<'a, '_>, key: &str) -> Result<Vec<NodeIndex>, String> {
        let schemas = place.array(key)?;
        if schemas.is_empty() {
            return Err(place.wrong(key, "is empty; write at least one schema"));
        }
        schemas.iter().enumerate().map(|(n, schema)| self.node(below(place.at, key, n), schema)).collect()
    }

    /// The schemas of an object, by their names.
    fn named(&mut self, place: &SchemaPlace<'a, '_>, key: &str) -> Result<Vec<(&'a str, NodeIndex)>, String> {
        if place.get(key).is_none() {
            return Ok(Vec::new());
        }
        let schemas = place.object(key)?.iter();
        schemas
            .map(|(name, schema)| Ok((name.as_str(), self.node(below(place.at, key, name), schema)?)))
            .collect()
    }

    /// `$ref`: a JSON pointer into the same schema.
    fn reference(&mut self, place: &SchemaPlace<'a, '_>) -> Result<SchemaRule, String> {
        let text = place.text("$ref")?;
        let is_own =
            |id: &&str| text == *id || text.strip_prefix(*id).is_some_and(|rest| rest.starts_with('#'));
        let own = self.id.filter(|id| !id.is_empty()).filter(is_own).map_or(text, |id| &text[id.len()..]);
        let shown = format!("{text:?}");
        let pointer = match own.strip_prefix('#') {
            None if own.is_empty() && !text.is_empty() => String::new(),
            Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => {
                String::from_utf8(decode_percent(pointer)).map_err(|_| place.wrong("$ref", "is not UTF-8"))?
            }
            Some(_) => {
                let why = format!("{shown} names an anchor; write a JSON pointer such as \"#/$defs/name\"");
                return Err(place.wrong("$ref", why));
            }
            None => {
                let why = format!(
                    "{shown} leads out of this schema; copy it into $defs, and write \"#/$defs/name\""
                );
                return Err(place.wrong("$ref", why));
            }
        };
        // Below another $id, what #/ leads to would be another schema.
        let ends = pointer.match_indices('/').map(|(end, _)| &pointer[..end]).chain([pointer.as_str()]);
        let has_id = |at: &str| self.root.pointer(at).is_some_and(|above| above["$id"].is_string());
        if ends.filter(|at| !at.is_empty()).any(has_id) {
            return Err(
                place.wrong("$ref", format!("{shown} leads below another $id, which is not supported"))
            );
        }
        let found = self.root.pointer(&pointer);
        let value =
            found.ok_or_else(|| place.wrong("$ref", format!("{shown} leads to nothing in this schema")))?;
        Ok(SchemaRule::Ref(self.node(pointer, value)?))
    }

    /// `prefixItems` and `items`; before draft 2020-12 an array of `items` and `additionalItems`.
    fn items(&mut self, place: &SchemaPlace<'a, '_>) -> Result<SchemaRule, String> {
        let is_array = place.get("items").is_some_and(Value::is_array);
        let is_old = matches!(self.dialect, SchemaDialect::Draft7 | SchemaDialect::Draft2019);
        let (first, rest) = if is_array { ("items", "additionalItems") } else { ("prefixItems", "items") };
        if is_array && self.dialect == SchemaDialect::Draft2020 {
            return Err(
                place.wrong("items", "is a schema in draft 2020-12; write prefixItems for an array of them")
            );
        }
        if is_old && place.get("prefixItems").is_some() {
            return Err(place.wrong("prefixItems", "is draft 2020-12's; write items as an array"));
        }
        if !is_old && !is_array && place.get("additionalItems").is_some() {
            return Err(
                place.wrong("additionalItems", "goes with an array of items; write items beside prefixItems")
            );
        }
        let first = match place.get(first) {
            // Older drafts allow none.
            Some(Value::Array(none)) if none.is_empty() => Vec::new(),
            Some(_) => self.children(place, first)?,
            None => Vec::new(),
        };
        let rest = place.get(rest).map(|_| self.child(place, rest)).transpose()?;
        Ok(SchemaRule::Items { first, rest })
    }

    fn contains(&mut self, place: &SchemaPlace<'a, '_>) -> Result<SchemaRule, String> {
        let least = place.count("minContains")?.unwrap_or(1);
        let range = SchemaRange { least, most: place.count("maxContains")? };
        Ok(SchemaRule::Contains { schema: self.child(place, "contains")?, range })
    }

    fn members(&mut self, place: &SchemaPlace<'a, '_>) -> Result<SchemaRule, String> {
        let named = self.named(place, "properties")?;
        let named = named.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
        let mut patterns = Vec::new();
        for (pattern, schema) in self.named(place, "patternProperties")? {
            let built = regex(&translated(pattern));
            let at = || format!("{}/patternProperties", place.at);
            patterns.push((built.map_err(|why| wrong(&at(), pattern, why))?, schema));
        }
        let others = "additionalProperties";
        let others = place.get(others).map(|_| self.child(place, others)).transpose()?;
        Ok(SchemaRule::Members { named, patterns, others })
    }

    fn dependencies(
        &mut self,
        place: &SchemaPlace<'a, '_>,
        key: &str,
        rules: &mut Vec<SchemaRule>,
    ) -> Result<(), String> {
        for (name, value) in place.object(key)? {
            rules.push(match value {
                Value::Array(_) if key != "dependentSchemas" => {
                    SchemaRule::RequiredWith(name.clone(), place.names(key, value)?)
                }
                _ if key != "dependentRequired" => {
                    SchemaRule::SchemaWith(name.clone(), self.node(below(place.at, key, name), value)?)
                }
                _ => return Err(place.wrong(key, "must have arrays of names")),
            });
        }
        Ok(())
    }

    /// Refuses schemas that lead back to themselves for one and the same value, and long rows of them.
    fn check_loops(&self) -> Result<(), String> {
        let mut waiting = vec![0usize; self.nodes.len()];
        let in_place: Vec<HashSet<NodeIndex>> = self
            .nodes
            .iter()
            .map(|node| node.rules.iter().flat_map(SchemaRule::in_place).collect())
            .collect();
        in_place.iter().flatten().for_each(|to| waiting[*to] += 1);
        let mut levels = vec![1usize; self.nodes.len()];
        let mut ready: Vec<NodeIndex> = (0..waiting.len()).filter(|node| waiting[*node] == 0).collect();
        let mut left = waiting.len();
        let place = |wanted: NodeIndex| {
            self.known.iter().find(|(_, node)| **node == wanted).map_or("", |(at, _)| at.as_str())
        };
        while let Some(node) = ready.pop() {
            left -= 1;
            if levels[node] > SCHEMA_IN_PLACE {
                let at = place(node);
                return Err(format!(
                    "#{at}: more than {SCHEMA_IN_PLACE} schemas within each other for one value"
                ));
            }
            for to in &in_place[node] {
                levels[*to] = levels[*to].max(levels[node] + 1);
                waiting[*to] -= 1;
                if waiting[*to] == 0 {
                    ready.push(*to);
                }
            }
        }
        let looped = waiting.iter().position(|waiting| *waiting > 0).filter(|_| left > 0);
        looped.map_or(Ok(()), |node| Err(format!("#{}: leads back to itself without end", place(node))))
    }
}

fn types(place: &SchemaPlace<'_, '_>) -> Result<Vec<JsonType>, String> {
    let names = match place.get("type") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(value) => place.names("type", value)?,
        None => Vec::new(),
    };
    let known = |name: &String| JsonType::ALL.iter().find(|(_, known)| known == name).map(|(of, _)| *of);
    let types = names.iter().map(known).collect::<Option<Vec<_>>>();
    types.filter(|types| !types.is_empty()).ok_or_else(|| {
        let all: Vec<&str> = JsonType::ALL.iter().map(|(_, name)| *name).collect();
        place.wrong("type", format!("must be one or more of {}", all.join(", ")))
    })
}

fn values(values: &[Value]) -> SchemaRule {
    const SHOWN: usize = 10;
    let mut shown: Vec<String> = values.iter().take(SHOWN).map(Value::to_string).collect();
    if values.len() > SHOWN {
        shown.push(format!("{} more", values.len() - SHOWN));
    }
    let one_of = if values.len() == 1 { "" } else { "one of " };
    SchemaRule::Values(values.iter().map(canonical).collect(), format!("{one_of}{}", shown.join(", ")))
}

fn bound(
    place: &SchemaPlace<'_, '_>,
    key: &str,
    rule: impl Fn(JsonNumber, String) -> SchemaRule,
) -> Result<SchemaRule, String> {
    place.bound(key).map(|(number, shown)| rule(number, shown))
}

fn multiple(place: &SchemaPlace<'_, '_>) -> Result<SchemaRule, String> {
    let (of, shown) = place.bound("multipleOf")?;
    match of.compare(JsonNumber::Whole(0)) {
        Some(std::cmp::Ordering::Greater) => Ok(SchemaRule::MultipleOf(of, shown)),
        _ => Err(place.wrong("multipleOf", "must be greater than 0")),
    }
}
