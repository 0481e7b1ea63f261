//! Requests and objects for tests.

use ferry_meta::{ApiError, GroupVersionKind, GroupVersionResource, UserInfo};
use serde_json::{Value, json};

pub(crate) use ferry_auth::testing::Objects;

use crate::{Equivalent, Equivalents, Operation, Plugin, Request};

/// One request to admit.
pub(crate) struct Case {
    operation: Operation,
    resource: GroupVersionResource,
    subresource: String,
    namespace: String,
    name: String,
    user: UserInfo,
    dry_run: bool,
    object: Option<Value>,
    old: Option<Value>,
    kind: String,
    equivalents: Option<Box<dyn Equivalents>>,
}

impl Case {
    fn new(operation: Operation, group: &str, resource: &str, namespace: &str) -> Self {
        Self {
            operation,
            resource: GroupVersionResource::new(group, "v1", resource),
            subresource: String::new(),
            namespace: namespace.into(),
            name: String::new(),
            user: UserInfo::new("bob", &[]),
            dry_run: false,
            object: None,
            old: None,
            kind: "Kind".into(),
            equivalents: None,
        }
    }

    /// The other versions of the resource.
    pub(crate) fn also_in(mut self, equivalents: impl Equivalents + 'static) -> Self {
        self.equivalents = Some(Box::new(equivalents));
        self
    }

    pub(crate) fn of_kind(mut self, kind: &str) -> Self {
        self.kind = kind.into();
        self
    }

    pub(crate) fn create(group: &str, resource: &str, namespace: &str, object: Value) -> Self {
        let name = ferry_meta::object::name(&object).to_owned();
        Self { object: Some(object), name, ..Self::new(Operation::Create, group, resource, namespace) }
    }

    pub(crate) fn update(group: &str, resource: &str, namespace: &str, object: Value, old: Value) -> Self {
        let name = ferry_meta::object::name(&object).to_owned();
        Self { object: Some(object), old: Some(old), name, ..Self::new(Operation::Update, group, resource, namespace) }
    }

    pub(crate) fn delete(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self { name: name.into(), ..Self::new(Operation::Delete, group, resource, namespace) }
    }

    /// The object that a deletion is about.
    pub(crate) fn of(mut self, old: Value) -> Self {
        self.old = Some(old);
        self
    }

    pub(crate) fn at(mut self, subresource: &str) -> Self {
        self.subresource = subresource.into();
        self
    }

    pub(crate) fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    pub(crate) fn by(mut self, user: UserInfo) -> Self {
        self.user = user;
        self
    }

    /// The object as the plug-in left it.
    pub(crate) async fn mutate(mut self, plugin: &dyn Plugin) -> Result<Value, ApiError> {
        let mut object = self.object.take();
        self.run(object.as_mut(), plugin, false).await?;
        Ok(object.unwrap_or_default())
    }

    /// The warnings of the plug-in.
    pub(crate) async fn validate(mut self, plugin: &dyn Plugin) -> Result<Vec<String>, ApiError> {
        let mut object = self.object.take();
        let before = object.clone();
        let warnings = self.run(object.as_mut(), plugin, true).await?;
        assert_eq!(object, before, "validation must not change anything");
        Ok(warnings)
    }

    async fn run(
        &self,
        object: Option<&mut Value>,
        plugin: &dyn Plugin,
        validating: bool,
    ) -> Result<Vec<String>, ApiError> {
        let kind = GroupVersionKind::new(&*self.resource.group, "v1", &*self.kind);
        let options = json!({});
        let mut request = Request {
            operation: self.operation,
            kind: &kind,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            user: &self.user,
            dry_run: self.dry_run,
            object,
            old: self.old.as_ref(),
            options: &options,
            warnings: Vec::new(),
            annotations: Vec::new(),
            reinvoked: false,
            calls: Vec::new(),
            equivalents: self.equivalents.as_deref(),
            requested: None,
        };
        if !plugin.handles(self.operation) {
            return Ok(Vec::new());
        }
        if validating {
            plugin.validate(&mut request).await?
        } else {
            plugin.mutate(&mut request).await?
        }
        Ok(request.warnings)
    }
}

/// ConfigMaps that are served in `v2` too, where `data` is called `content`.
pub(crate) struct SecondVersion([Equivalent; 1]);

impl SecondVersion {
    pub(crate) fn new(kind: &str) -> Self {
        Self([Equivalent {
            resource: GroupVersionResource::new("", "v2", "configmaps"),
            kind: GroupVersionKind::new("", "v2", kind),
        }])
    }
}

#[async_trait::async_trait]
impl Equivalents for SecondVersion {
    fn list(&self) -> &[Equivalent] {
        &self.0
    }

    async fn convert(&self, object: &Value, from: &GroupVersionKind, to: &GroupVersionKind) -> Result<Value, ApiError> {
        let field = |kind: &GroupVersionKind| if kind.version == "v1" { "data" } else { "content" };
        let mut object = object.clone();
        let map = object.as_object_mut().ok_or_else(|| ApiError::internal("no object"))?;
        let data = map.remove(field(from)).unwrap_or_default();
        map.insert(field(to).into(), data);
        map.insert("apiVersion".into(), to.api_version().into());
        Ok(object)
    }
}
