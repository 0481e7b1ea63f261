//! The type catalogue: what is known of every type, by name and by kind.
//!
//! Fields stand in the order of the Go structs, which is the order of upstream's JSON. Inlined structs appear twice: flattened
//! into [`TypeDef::fields`] for everything that reads JSON, and as they are in [`TypeDef::declared`] for protobuf, where an
//! inlined struct is a message of its own.

mod load;
mod names;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use ferry_meta::GroupVersionKind;
use names::Names;
use serde_json::Value;

use crate::structural::Schema;

/// Index of a type in its catalogue.
pub type TypeId = u32;

/// What a value looks like in JSON, and in protobuf.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    String,
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Float,
    /// Base64 in JSON.
    Bytes,
    Quantity,
    /// Whole seconds.
    Time,
    /// Microseconds.
    MicroTime,
    Duration,
    IntOrString,
    /// `runtime.RawExtension`: any JSON, kept as it is.
    Raw,
    /// `FieldsV1`: a trie of owned fields.
    Fields,
    /// `apiextensions.JSON`: any JSON value.
    Json,
    /// Any JSON value without a type of its own (cells of a Table; custom resources that preserve unknown fields).
    Any,
    /// One schema or a list of them.
    SchemaOrArray,
    /// A schema or a boolean.
    SchemaOrBool,
    /// A schema or a list of strings.
    SchemaOrStrings,
    Struct(TypeId),
    List(Box<Item>),
    Map(Box<Item>),
}

impl Shape {
    /// Anything goes, and is kept as it came.
    pub fn is_any(&self) -> bool {
        matches!(self, Self::Raw | Self::Fields | Self::Json | Self::Any)
    }
}

/// The type of a field, of a list's items or of a map's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub shape: Shape,
    /// A Go pointer: its zero is real, and only `null` is absent.
    pub pointer: bool,
    /// How Go's errors name the type: `[]v1.Container`.
    pub go_type: Box<str>,
    /// A named list that is a protobuf message of its own.
    pub wrapped: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// Strategic merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    pub replace: bool,
    pub retain_keys: bool,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: Box<str>,
    pub item: Item,
    pub omit_empty: bool,
    pub omit_zero: bool,
    /// Required in OpenAPI.
    pub required: bool,
    pub list_type: ListType,
    /// The keys of a list of type map.
    pub list_keys: Box<[Box<str>]>,
    pub patch: PatchStrategy,
    pub merge_key: Box<str>,
    /// A map that is owned and replaced as a whole.
    pub atomic_map: bool,
    /// A struct that is owned field by field here, though its type is owned as a whole.
    pub granular: bool,
    pub default: Option<Value>,
    /// Protobuf field number; 0 where the field has none.
    pub number: u32,
}

/// A field as the Go struct declares it.
#[derive(Clone, Debug)]
pub enum Declared {
    /// Index into [`TypeDef::fields`].
    Field(usize),
    /// An inlined struct: its fields are the parent's in JSON, a message with this number in protobuf (0: none).
    Inline { id: TypeId, number: u32 },
}

#[derive(Clone, Debug, Default)]
pub struct TypeDef {
    /// `io.k8s.api.core.v1.Pod`.
    pub name: Box<str>,
    /// `Pod`.
    pub leaf: Box<str>,
    /// `v1.Pod`.
    pub go_name: Box<str>,
    pub group: Box<str>,
    pub version: Box<str>,
    /// Has `kind` and `apiVersion`.
    pub is_kind: bool,
    /// Has a protobuf message.
    pub is_message: bool,
    /// Owned and replaced as a whole.
    pub atomic: bool,
    /// Unknown fields are kept: for custom resources.
    pub preserve_unknown: bool,
    pub fields: Vec<Field>,
    pub declared: Vec<Declared>,
    /// Where the fields are by their names.
    pub(crate) by_name: Names,
    /// Indexes of fields that Go writes even when a client did not.
    pub(crate) always: Vec<u16>,
    /// (number, index into `declared`) of what has a protobuf number, ordered by it.
    pub(crate) numbered: Vec<(u32, u16)>,
}

impl TypeDef {
    /// A struct of which nothing is written that is not there.
    pub(crate) fn with_fields(mut self, fields: Vec<Field>) -> Self {
        self.by_name = Names::of(&fields);
        self.fields = fields;
        self
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.field_index(name).map(|i| &self.fields[i])
    }

    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.by_name.find(&self.fields, name)
    }
}

#[derive(Debug, Default)]
pub struct Catalogue {
    types: Vec<TypeDef>,
    names: HashMap<Box<str>, TypeId>,
    kinds: HashMap<GroupVersionKind, TypeId>,
    /// The schema all of it comes from, for a custom resource.
    custom: Option<Box<Schema>>,
}

impl Catalogue {
    /// The types of one version of a custom resource; its own is the first.
    pub(crate) fn custom(types: Vec<TypeDef>, schema: Schema) -> Self {
        Self { types, custom: Some(Box::new(schema)), ..Self::default() }
    }

    pub fn get(&self, id: TypeId) -> &TypeDef {
        &self.types[id as usize]
    }

    pub fn types(&self) -> &[TypeDef] {
        &self.types
    }

    pub fn id(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).copied()
    }

    /// A type by its OpenAPI name: `io.k8s.api.core.v1.PodSpec`.
    pub fn named(self: &Arc<Self>, name: &str) -> Option<Type> {
        self.id(name).map(|id| Type { catalogue: self.clone(), id })
    }

    /// The type of a kind. Options and events of the meta group (`DeleteOptions`, `WatchEvent`, …) are found in every
    /// group and version, as upstream registers them.
    pub fn kind(self: &Arc<Self>, gvk: &GroupVersionKind) -> Option<Type> {
        let id = self.kinds.get(gvk).copied().or_else(|| self.meta_kind(gvk))?;
        Some(Type { catalogue: self.clone(), id })
    }

    fn meta_kind(&self, gvk: &GroupVersionKind) -> Option<TypeId> {
        const EVERYWHERE: [&str; 7] = [
            "DeleteOptions",
            "CreateOptions",
            "UpdateOptions",
            "PatchOptions",
            "ListOptions",
            "GetOptions",
            "WatchEvent",
        ];
        const CORE: [&str; 5] = ["Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList"];
        let everywhere = EVERYWHERE.contains(&&*gvk.kind);
        let core = gvk.group.is_empty() && gvk.version == "v1" && CORE.contains(&&*gvk.kind);
        if everywhere || core { self.id(&format!("{META}.{}", gvk.kind)) } else { None }
    }

    /// How Go's errors name a field of a struct: the structs it is inlined from come first.
    pub fn go_path<'c>(&'c self, id: TypeId, field: &'c str) -> Vec<&'c str> {
        let definition = self.get(id);
        let inlined = definition.declared.iter().find_map(|declared| match declared {
            Declared::Inline { id, .. } if self.get(*id).field_index(field).is_some() => Some(*id),
            _ => None,
        });
        match inlined {
            Some(inner) => {
                let mut path = vec![&*self.get(inner).leaf];
                path.extend(self.go_path(inner, field));
                path
            }
            None => vec![field],
        }
    }

    pub fn kinds(&self) -> impl Iterator<Item = &GroupVersionKind> {
        self.kinds.keys()
    }
}

pub(crate) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// A cheap handle of one type.
#[derive(Clone, Debug)]
pub struct Type {
    catalogue: Arc<Catalogue>,
    id: TypeId,
}

impl Type {
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    pub fn id(&self) -> TypeId {
        self.id
    }

    pub(crate) fn of(catalogue: Arc<Catalogue>, id: TypeId) -> Self {
        Self { catalogue, id }
    }

    /// The schema of a custom resource's own type; None for every other type.
    pub fn schema(&self) -> Option<&Schema> {
        self.catalogue.custom.as_deref().filter(|_| self.id == 0)
    }

    pub fn def(&self) -> &TypeDef {
        self.catalogue.get(self.id)
    }

    pub fn name(&self) -> &str {
        &self.def().name
    }

    pub fn fields(&self) -> &[Field] {
        &self.def().fields
    }

    /// The type of a field that is a struct, a list of structs or a map of structs.
    pub fn child(&self, field: &str) -> Option<Self> {
        let mut item = &self.def().field(field)?.item;
        loop {
            match &item.shape {
                Shape::Struct(id) => return Some(Self { catalogue: self.catalogue.clone(), id: *id }),
                Shape::List(inner) | Shape::Map(inner) => item = inner,
                _ => return None,
            }
        }
    }
}

static BUILT_IN: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(load::load(include_str!("../../data/catalogue.txt"))));

/// The built-in kinds of the API level.
pub fn builtin() -> &'static Arc<Catalogue> {
    &BUILT_IN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gvk(group: &str, version: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind::new(group, version, kind)
    }

    #[test]
    fn kinds_are_found() {
        for (group, version, kind, name) in [
            ("", "v1", "Pod", "io.k8s.api.core.v1.Pod"),
            ("apps", "v1", "DeploymentList", "io.k8s.api.apps.v1.DeploymentList"),
            ("apps", "v1", "DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
            ("", "v1", "Status", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
            ("meta.k8s.io", "v1", "Table", "io.k8s.apimachinery.pkg.apis.meta.v1.Table"),
            ("autoscaling", "v1", "Scale", "io.k8s.api.autoscaling.v1.Scale"),
        ] {
            let found = builtin().kind(&gvk(group, version, kind)).map(|t| t.name().to_owned());
            assert_eq!(found.as_deref(), Some(name), "{group}/{version} {kind}");
        }
        assert!(builtin().kind(&gvk("", "v1", "Banana")).is_none());
    }

    #[test]
    fn fields_know_their_attributes() {
        let container = builtin().named("io.k8s.api.core.v1.Container").expect("the type");
        let ports = container.def().field("ports").expect("the field");
        assert_eq!(&*ports.item.go_type, "[]v1.ContainerPort");
        assert_eq!(ports.list_type, ListType::Map);
        assert_eq!(ports.list_keys.iter().map(|k| &**k).collect::<Vec<_>>(), ["containerPort", "protocol"]);
        assert_eq!((&*ports.merge_key, ports.patch.merge, ports.number), ("containerPort", true, 6));
        let port = container.child("ports").expect("the type of a port");
        assert_eq!(port.def().field("protocol").and_then(|f| f.default.clone()), Some("TCP".into()));
        assert!(port.def().field("containerPort").is_some_and(|f| f.required));
    }

    #[test]
    fn inlined_structs_are_flattened() {
        let volume = builtin().named("io.k8s.api.core.v1.Volume").expect("the type");
        assert_eq!(&*volume.fields()[0].name, "name");
        assert!(volume.def().field("hostPath").is_some());
        assert!(matches!(volume.def().declared[1], Declared::Inline { number: 2, .. }));
    }
}
