//! The kinds of the Gateway API, as far as the gateway reads them. Defaults are those of the CRDs, so that an object is read
//! the same whoever installed them. A status is kept as it came: parts of it may be somebody else's.

mod gateway;
mod policy;
mod route;
mod status;

use std::borrow::Cow;

use ferry_client::Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use serde::{Deserialize, Serialize};

pub use gateway::*;
pub use policy::*;
pub use route::*;
pub use status::Status;

pub const GROUP: &str = "gateway.networking.k8s.io";

macro_rules! kinds {
    ($($kind:ident $plural:literal $version:literal $scope:ty, $spec:ty;)*) => { $(
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $kind {
            #[serde(default)]
            pub metadata: ObjectMeta,
            #[serde(default)]
            pub spec: $spec,
            #[serde(default, skip_serializing_if = "Status::is_empty")]
            pub status: Status,
        }

        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group(_: &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version(_: &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Wire for $kind {
            fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
                serde_json::from_slice(json)
            }

            fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
                serde_json::to_vec(self)
            }
        }
    )* };
}

kinds! {
    GatewayClass "gatewayclasses" "v1" ClusterResourceScope, GatewayClassSpec;
    Gateway "gateways" "v1" NamespaceResourceScope, GatewaySpec;
    ListenerSet "listenersets" "v1" NamespaceResourceScope, ListenerSetSpec;
    HTTPRoute "httproutes" "v1" NamespaceResourceScope, HTTPRouteSpec;
    GRPCRoute "grpcroutes" "v1" NamespaceResourceScope, GRPCRouteSpec;
    TLSRoute "tlsroutes" "v1" NamespaceResourceScope, StreamRouteSpec;
    TCPRoute "tcproutes" "v1" NamespaceResourceScope, StreamRouteSpec;
    UDPRoute "udproutes" "v1" NamespaceResourceScope, StreamRouteSpec;
    ReferenceGrant "referencegrants" "v1beta1" NamespaceResourceScope, ReferenceGrantSpec;
    BackendTLSPolicy "backendtlspolicies" "v1" NamespaceResourceScope, BackendTLSPolicySpec;
}

fn gateway_group() -> String {
    GROUP.to_owned()
}

fn gateway_kind() -> String {
    "Gateway".to_owned()
}

fn secret_kind() -> String {
    "Secret".to_owned()
}

fn service_kind() -> String {
    "Service".to_owned()
}
