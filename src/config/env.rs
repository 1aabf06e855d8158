//! The environment as a tree.

use super::error::ConfigFileError;
use serde_json::{Map, Value};

const BETWEEN: &str = "__";

/// Puts the variables that begin with the prefix where their names say.
pub(super) fn read<K, V>(
    prefix: &str,
    variables: impl IntoIterator<Item = (K, V)>,
) -> Result<Value, ConfigFileError>
where
    K: AsRef<str>,
    V: AsRef<str>,
{
    let start = format!("{prefix}{BETWEEN}").to_ascii_lowercase();
    let mut root = Value::Object(Map::new());
    for (name, value) in variables {
        let lower = name.as_ref().to_ascii_lowercase();
        if let Some(path) = lower.strip_prefix(&start) {
            put(&mut root, path, read_value(value.as_ref()))?;
        }
    }
    Ok(root)
}

fn read_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn put(root: &mut Value, path: &str, value: Value) -> Result<(), ConfigFileError> {
    let mut at = root;
    for part in path.split(BETWEEN) {
        let Value::Object(fields) = at else {
            return Err(clash(path));
        };
        at = fields.entry(part.to_owned()).or_insert(Value::Null);
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
    }
    // Only what was made just now is empty.
    if at.as_object().is_none_or(|fields| !fields.is_empty()) {
        return Err(clash(path));
    }
    *at = value;
    Ok(())
}

fn clash(path: &str) -> ConfigFileError {
    let path = path.replace(BETWEEN, ".");
    ConfigFileError::new(path, "another variable sets a part of it, or the whole")
}
