//! JSON Schema: what a body must be like, by the keywords of draft 2020-12 and draft-07 that `build` knows.
//!
//! `build` compiles a schema once, and refuses what it does not know; `check` compares bodies with it.

mod build;
mod check;
#[cfg(test)]
mod tests;
mod value;

use std::collections::{HashMap, HashSet};

use regex::bytes::Regex;

use self::value::JsonNumber;

/// A compiled schema: its root is the first node.
#[derive(Debug)]
pub(crate) struct JsonSchema {
    nodes: Vec<SchemaNode>,
}

/// All that one schema asks of a value.
#[derive(Debug, Default)]
struct SchemaNode {
    rules: Vec<SchemaRule>,
}

/// The place of a node among all of a schema.
type NodeIndex = usize;

/// What one keyword asks, or several that belong together.
#[derive(Debug)]
enum SchemaRule {
    /// Nothing is right: the schema `false`.
    Never,
    Types(Vec<JsonType>),
    /// Canonical forms, and the values for people.
    Values(HashSet<String>, String),
    Least(JsonNumber, String),
    Most(JsonNumber, String),
    Above(JsonNumber, String),
    Below(JsonNumber, String),
    MultipleOf(JsonNumber, String),
    Length(SchemaRange),
    Pattern(Regex, String),
    Items {
        first: Vec<NodeIndex>,
        rest: Option<NodeIndex>,
    },
    Count(SchemaRange),
    Unique,
    Contains {
        schema: NodeIndex,
        range: SchemaRange,
    },
    Members {
        named: HashMap<String, NodeIndex>,
        patterns: Vec<(Regex, NodeIndex)>,
        others: Option<NodeIndex>,
    },
    Required(Vec<String>),
    MemberCount(SchemaRange),
    Names(NodeIndex),
    RequiredWith(String, Vec<String>),
    SchemaWith(String, NodeIndex),
    Ref(NodeIndex),
    All(Vec<NodeIndex>),
    Any(Vec<NodeIndex>),
    One(Vec<NodeIndex>),
    Not(NodeIndex),
    If {
        test: NodeIndex,
        good: Option<NodeIndex>,
        otherwise: Option<NodeIndex>,
    },
}

impl SchemaRule {
    /// Schemas that it applies to the same value.
    fn in_place(&self) -> Vec<NodeIndex> {
        match self {
            SchemaRule::SchemaWith(_, schema) | SchemaRule::Ref(schema) | SchemaRule::Not(schema) => {
                vec![*schema]
            }
            SchemaRule::All(schemas) | SchemaRule::Any(schemas) | SchemaRule::One(schemas) => schemas.clone(),
            SchemaRule::If { test, good, otherwise } => {
                [Some(*test), *good, *otherwise].into_iter().flatten().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// How many of something.
#[derive(Clone, Copy, Debug)]
struct SchemaRange {
    least: u64,
    most: Option<u64>,
}

impl SchemaRange {
    fn holds(self, count: usize) -> bool {
        let count = count as u64;
        count >= self.least && self.most.is_none_or(|most| count <= most)
    }

    /// In words, of these things.
    fn shown(self, things: &str) -> String {
        match (self.least, self.most) {
            (0, Some(most)) => format!("at most {most} {things}"),
            (least, Some(most)) => format!("{least} to {most} {things}"),
            (least, None) => format!("at least {least} {things}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonType {
    Null,
    Boolean,
    Object,
    Array,
    Number,
    Integer,
    String,
}

impl JsonType {
    const ALL: [(JsonType, &'static str); 7] = [
        (JsonType::Null, "null"),
        (JsonType::Boolean, "boolean"),
        (JsonType::Object, "object"),
        (JsonType::Array, "array"),
        (JsonType::Number, "number"),
        (JsonType::Integer, "integer"),
        (JsonType::String, "string"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(of, _)| *of == self).map_or("", |(_, name)| name)
    }
}

/// A step of a JSON pointer (RFC 6901).
fn pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
