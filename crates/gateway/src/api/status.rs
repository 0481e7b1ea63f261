//! A status as it came. It is kept as text, which takes a tenth of what its values would, and read when it is needed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Clone, Debug, Default)]
pub struct Status(Option<Box<RawValue>>);

impl Status {
    pub fn value(&self) -> Value {
        self.0.as_ref().and_then(|text| serde_json::from_str(text.get()).ok()).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl PartialEq for Status {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_deref().map(RawValue::get) == other.0.as_deref().map(RawValue::get)
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Option<Box<RawValue>>>::deserialize(deserializer)?;
        Ok(Self(text.filter(|text| text.get() != "null")))
    }
}
