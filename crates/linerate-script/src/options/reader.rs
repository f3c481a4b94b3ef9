//! Values of options, by their names.

use std::time::Duration;

use serde_json::{Map, Value};

/// Reads values of options, and names those that are wrong.
pub(super) struct OptionReader<'a>(pub(super) &'a Map<String, Value>);

impl<'a> OptionReader<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn wrong<T>(&self, key: &str, wanted: &str) -> Result<T, String> {
        let value = self.get(key).unwrap_or(&Value::Null);
        Err(format!("{key} is {value}: it has to be {wanted}"))
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => self.wrong(key, "true or false"),
        }
    }

    pub(super) fn number(&self, key: &str, usual: u32) -> Result<u32, String> {
        match self.get(key) {
            None => Ok(usual),
            Some(value) => match value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..=4e9).contains(n)) {
                Some(n) => Ok(n as u32),
                None => self.wrong(key, "a whole number"),
            },
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => self.wrong(key, "a text"),
        }
    }

    pub(super) fn map(&self, key: &str) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, String> {
        match self.get(key) {
            None => Ok(None.into_iter().flatten()),
            Some(Value::Object(map)) => Ok(Some(map.iter()).into_iter().flatten()),
            Some(_) => self.wrong(key, "an object"),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<(String, String)>, String> {
        let text = |(name, value): (&String, &Value)| match value {
            Value::String(text) => Ok((name.clone(), text.clone())),
            // As k6 reads it.
            Value::Null => Ok((name.clone(), String::new())),
            Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
            _ => Err(format!("{key}.{name} is {value}: it has to be a text")),
        };
        self.map(key)?.map(text).collect()
    }

    pub(super) fn duration(&self, key: &str, usual: Duration) -> Result<Duration, String> {
        match self.get(key) {
            None => Ok(usual),
            Some(value) => crate::duration::duration(value).map_err(|why| format!("{key}: {why}")),
        }
    }
}
