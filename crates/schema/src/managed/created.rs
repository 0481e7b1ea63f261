//! The fields of new objects, remembered by shape: most new objects are like others before them (the pods of a
//! ReplicaSet, the events about them), and what a manager owns of one depends on its shape alone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::Write;

/// Shapes of one generation; the one before is kept too.
const SHAPES: usize = 128;
/// Larger shapes are not remembered.
const LONGEST: usize = 8 * 1024;

static MEMORY: LazyLock<Memory> = LazyLock::new(Memory::default);

/// `FieldsV1` of a new object of a built-in type, whose managed fields are taken out; Null where there is none.
pub(super) fn fields(write: &Write<'_>, object: &Value, make: impl FnOnce() -> Value) -> Arc<Value> {
    thread_local! {
        static SHAPE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SHAPE.with_borrow_mut(|shape| {
        shape.clear();
        let gvk = write.gvk;
        [&*gvk.group, &*gvk.version, &*gvk.kind].iter().chain(write.reset).for_each(|part| text(part, shape));
        if !describe(object, false, shape) {
            shape.shrink_to(LONGEST);
            return Arc::new(make());
        }
        MEMORY.get(shape, make)
    })
}

/// Writes all that the fields of an object depend on: the names of its fields, what stands in lists (it may be a key), and
/// whether a value is the zero that Go writes where there is none. False where that is too long.
fn describe(value: &Value, in_list: bool, out: &mut Vec<u8>) -> bool {
    /// Zeros of all types fit: `0`, `0s`.
    const ZERO: usize = 2;
    match value {
        Value::Null => out.push(b'n'),
        Value::Bool(on) => out.push(if *on { b't' } else { b'f' }),
        Value::Number(number) => {
            let (tag, bits) = match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => (b'i', whole.cast_unsigned()),
                (None, Some(whole)) => (b'u', whole),
                (None, None) => (b'd', number.as_f64().unwrap_or_default().to_bits()),
            };
            out.push(tag);
            out.extend_from_slice(&bits.to_le_bytes());
        }
        Value::String(string) if in_list || string.len() <= ZERO => {
            out.push(b's');
            text(string, out);
        }
        Value::String(_) => out.push(b'S'),
        Value::Array(items) => {
            out.push(b'[');
            length(items.len(), out);
            return items.iter().all(|item| describe(item, true, out));
        }
        Value::Object(map) => {
            out.push(b'{');
            length(map.len(), out);
            return map.iter().all(|(name, value)| {
                text(name, out);
                describe(value, in_list, out)
            });
        }
    }
    out.len() <= LONGEST
}

fn length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u64).to_le_bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    length(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// By the hash of the shape, which is compared in full: nobody gets another shape's fields by chance or by intent.
type Shapes = HashMap<u64, (Box<[u8]>, Arc<Value>)>;

#[derive(Default)]
struct Memory {
    hasher: RandomState,
    /// This generation, and the one before.
    shapes: Mutex<[Shapes; 2]>,
}

impl Memory {
    fn shapes(&self) -> MutexGuard<'_, [Shapes; 2]> {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, shape: &[u8], make: impl FnOnce() -> Value) -> Arc<Value> {
        let hash = self.hasher.hash_one(shape);
        let same = |(known, _): &&(Box<[u8]>, Arc<Value>)| **known == *shape;
        {
            let mut shapes = self.shapes();
            if let Some((_, fields)) = shapes[0].get(&hash).filter(same) {
                return fields.clone();
            }
            if let Some(known) = shapes[1].remove(&hash).filter(|known| same(&known)) {
                let fields = known.1.clone();
                put(&mut shapes, hash, known);
                return fields;
            }
        }
        let fields = Arc::new(make());
        put(&mut self.shapes(), hash, (shape.into(), fields.clone()));
        fields
    }
}

fn put(shapes: &mut [Shapes; 2], hash: u64, known: (Box<[u8]>, Arc<Value>)) {
    if shapes[0].len() >= SHAPES {
        shapes.swap(0, 1);
        shapes[0].clear();
    }
    shapes[0].insert(hash, known);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Which of two objects have one shape.
    #[test]
    fn shapes_differ_where_fields_may() {
        let same = |a: Value, b: Value| {
            let shape = |value: &Value| {
                let mut out = Vec::new();
                assert!(describe(value, false, &mut out));
                out
            };
            shape(&a) == shape(&b)
        };
        assert!(same(json!({"name": "one", "labels": {"a": "xyz"}}), json!({"name": "two", "labels": {"a": "zyx"}})));
        let different = [
            (json!({"name": "one"}), json!({"name": ""})),
            (json!({"name": "one"}), json!({"name": null})),
            (json!({"name": "one"}), json!({"game": "one"})),
            (json!({"wait": "10s"}), json!({"wait": "0s"})),
            (json!({"count": 1}), json!({"count": 0})),
            (json!({"count": 0}), json!({"count": 0.0})),
            (json!({"on": true}), json!({"on": false})),
            (json!({"map": {}}), json!({"map": []})),
            (json!({"map": {"a": {}}, "b": {}}), json!({"map": {"a": {}, "b": {}}})),
            (json!({"ports": [{"name": "http"}]}), json!({"ports": [{"name": "rest"}]})),
            (json!({"finalizers": ["one"]}), json!({"finalizers": ["two"]})),
            (json!({"items": [["a", "b"]]}), json!({"items": [["a"], ["b"]]})),
        ];
        for (a, b) in different {
            assert!(!same(a.clone(), b.clone()), "{a} {b}");
        }
        assert!(!describe(&json!({"list": ["x".repeat(LONGEST + 1)]}), false, &mut Vec::new()));
    }

    /// The short way ends where the long one does, the first time and when the shape is known.
    #[test]
    fn both_ways_lead_to_the_same_fields() {
        let pod = |name: &str, policy: Value, port: u16, labels: Value| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels, "finalizers": ["a/b"]},
                "spec": {"restartPolicy": policy, "nodeSelector": {}, "containers": [
                    {"name": "c", "image": "i", "ports": [{"containerPort": port}, {"containerPort": 9}], "env": [{"name": "E"}]},
                    {"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
                "status": {"phase": "Running"}})
        };
        let objects = [
            pod("one", json!("Never"), 80, json!({"a": "b"})),
            pod("two", json!("Never"), 80, json!({"a": "c"})),
            pod("one", json!(""), 80, json!({"a": "b"})),
            pod("one", json!("Never"), 81, json!({"b": ""})),
            pod("one", Value::Null, 81, json!({})),
            json!({"metadata": {"name": "bare"}}),
        ];
        let ty = crate::builtin().named("io.k8s.api.core.v1.Pod").expect("the type");
        let gvk = ferry_meta::GroupVersionKind::new("", "v1", "Pod");
        for reset in [&["status"][..], &[]] {
            let now = jiff::Timestamp::UNIX_EPOCH;
            let write = Write { gvk: &gvk, manager: "m", subresource: "", reset, now, versions: None };
            for object in objects.iter().chain(&objects) {
                let mut short = object.clone();
                super::super::update(&ty, &write, None, &mut short);
                let mut long = object.clone();
                crate::normalize(&ty, &mut long);
                let nothing = crate::zero::structure(ty.catalogue(), ty.id());
                let managers = super::super::after_update(&ty, &write, &nothing, &long, Default::default(), "m");
                super::super::set_managed_fields(&mut long, super::super::entries::write(&managers.expect("managers")));
                assert_eq!(short, long, "{object}");
            }
        }
    }

    #[test]
    fn what_was_seen_is_not_made_again() {
        let memory = Memory::default();
        let made = RefCell::new(0);
        let get = |shape: usize| {
            let fields = memory.get(&shape.to_le_bytes(), || {
                *made.borrow_mut() += 1;
                json!(shape)
            });
            assert_eq!(*fields, json!(shape));
        };
        (0..SHAPES).for_each(get);
        (0..SHAPES).for_each(get);
        assert_eq!(*made.borrow(), SHAPES);
        // What is asked for outlives many that are asked for once.
        for shape in 0..10 * SHAPES {
            get(shape);
            get(0);
        }
        assert_eq!(*made.borrow(), 10 * SHAPES);
        let kept: usize = memory.shapes().iter().map(HashMap::len).sum();
        assert!(kept <= 2 * SHAPES, "{kept}");
    }
}
