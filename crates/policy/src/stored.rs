//! A NetworkPolicy as the informer holds it: no other crate of the client side reads the kind.

use std::borrow::Cow;

use ferry_client::Wire;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

#[derive(Clone, Debug)]
pub struct StoredPolicy(pub NetworkPolicy);

impl Wire for StoredPolicy {
    fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json).map(Self)
    }

    fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.0)
    }
}

impl Resource for StoredPolicy {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        NetworkPolicy::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        NetworkPolicy::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        NetworkPolicy::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        NetworkPolicy::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}
