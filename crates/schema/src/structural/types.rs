//! A structural schema as a type of the catalogue, so that patches and apply treat custom resources as any other kind.

use std::sync::Arc;

use ferry_meta::GroupVersionKind;

use super::{Additional, Schema};
use crate::catalogue::{Catalogue, Field, Item, ListType, META, PatchStrategy, Shape, Type, TypeDef, TypeId};

/// The type of a version of a custom resource.
pub fn custom_type(kind: &GroupVersionKind, schema: Schema) -> Type {
    let mut types = Types::default();
    let root = types.push(TypeDef::default());
    let metadata = types.metadata();
    let mut fields = vec![
        field("kind", scalar(Shape::String)),
        field("apiVersion", scalar(Shape::String)),
        field("metadata", Item { shape: metadata, ..scalar(Shape::Any) }),
    ];
    for (name, of) in schema.properties.iter().filter(|(name, _)| !super::is_resource_field(name)) {
        fields.push(types.field(name, of));
    }
    let definition = TypeDef {
        name: format!("{}.{}.{}", kind.group, kind.version, kind.kind).into(),
        leaf: kind.kind.as_str().into(),
        go_name: "unstructured.Unstructured".into(),
        group: kind.group.as_str().into(),
        version: kind.version.as_str().into(),
        is_kind: true,
        preserve_unknown: schema.preserve_unknown,
        ..TypeDef::default()
    };
    types.list[root as usize] = definition.with_fields(fields);
    Type::of(Arc::new(Catalogue::custom(types.list, schema)), root)
}

fn scalar(shape: Shape) -> Item {
    Item { shape, pointer: true, go_type: Box::default(), wrapped: false }
}

fn field(name: &str, item: Item) -> Field {
    Field {
        name: name.into(),
        item,
        omit_empty: true,
        omit_zero: false,
        required: false,
        list_type: ListType::Atomic,
        list_keys: Box::default(),
        patch: PatchStrategy::default(),
        merge_key: Box::default(),
        atomic_map: false,
        granular: false,
        default: None,
        number: 0,
    }
}

#[derive(Default)]
struct Types {
    list: Vec<TypeDef>,
    /// Of the object itself and of those that stand inside of it.
    metadata: Option<Shape>,
}

impl Types {
    fn push(&mut self, definition: TypeDef) -> TypeId {
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(definition);
        id
    }

    fn metadata(&mut self) -> Shape {
        match &self.metadata {
            Some(known) => known.clone(),
            None => {
                let copied = self.copy(&format!("{META}.ObjectMeta"));
                self.metadata.insert(copied).clone()
            }
        }
    }

    /// A built-in type and all it consists of.
    fn copy(&mut self, name: &str) -> Shape {
        let built_in = crate::builtin();
        let mut known = Vec::new();
        match built_in.id(name) {
            Some(id) => Shape::Struct(self.copy_type(built_in, id, &mut known)),
            None => Shape::Any,
        }
    }

    fn copy_type(&mut self, from: &Catalogue, id: TypeId, known: &mut Vec<(TypeId, TypeId)>) -> TypeId {
        if let Some((_, copied)) = known.iter().find(|(of, _)| *of == id) {
            return *copied;
        }
        let own = self.push(from.get(id).clone());
        known.push((id, own));
        for index in 0..from.get(id).fields.len() {
            let mut item = from.get(id).fields[index].item.clone();
            self.copy_item(from, &mut item, known);
            self.list[own as usize].fields[index].item = item;
        }
        own
    }

    fn copy_item(&mut self, from: &Catalogue, item: &mut Item, known: &mut Vec<(TypeId, TypeId)>) {
        match &mut item.shape {
            Shape::Struct(id) => *id = self.copy_type(from, *id, known),
            Shape::List(inner) | Shape::Map(inner) => self.copy_item(from, inner, known),
            _ => {}
        }
    }

    fn field(&mut self, name: &str, schema: &Schema) -> Field {
        Field {
            list_type: schema.list_type,
            list_keys: schema.list_keys.iter().map(|key| key.as_str().into()).collect(),
            atomic_map: schema.atomic_map,
            granular: false,
            default: schema.default.clone(),
            required: false,
            ..field(name, self.item(schema))
        }
    }

    fn item(&mut self, schema: &Schema) -> Item {
        let shape = match &*schema.kind {
            _ if schema.int_or_string => Shape::IntOrString,
            "string" => Shape::String,
            "boolean" => Shape::Bool,
            "integer" => Shape::Int64,
            "number" => Shape::Float,
            "array" => match &schema.items {
                Some(items) => Shape::List(Box::new(self.item(items))),
                None => Shape::List(Box::new(scalar(Shape::Any))),
            },
            "object" => self.object(schema),
            _ => Shape::Any,
        };
        scalar(shape)
    }

    fn object(&mut self, schema: &Schema) -> Shape {
        match &schema.additional {
            Additional::Of(of) if schema.properties.is_empty() => return Shape::Map(Box::new(self.item(of))),
            Additional::Anything if schema.properties.is_empty() => return Shape::Map(Box::new(scalar(Shape::Any))),
            _ => {}
        }
        if schema.preserve_unknown && schema.properties.is_empty() && !schema.atomic_map && !schema.embedded {
            return Shape::Any;
        }
        let id = self.push(TypeDef::default());
        let mut fields = Vec::new();
        if schema.embedded {
            for name in ["apiVersion", "kind"] {
                fields.push(field(name, scalar(Shape::String)));
            }
            let metadata = self.metadata();
            fields.push(field("metadata", scalar(metadata)));
        }
        for (name, of) in &schema.properties {
            if !(schema.embedded && super::is_resource_field(name)) {
                fields.push(self.field(name, of));
            }
        }
        let definition =
            TypeDef { preserve_unknown: schema.preserve_unknown, atomic: schema.atomic_map, ..TypeDef::default() };
        self.list[id as usize] = definition.with_fields(fields);
        Shape::Struct(id)
    }
}
