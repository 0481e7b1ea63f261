//! Who is calling, and may they: the authentication and authorization chains.
//!
//! Reads cluster state only through `meta::ObjectReader`; must not depend on the store, the registry or the API server.

pub mod authenticate;
pub mod authorize;

pub use authenticate::{Authenticator, AuthnError, Credentials};
pub use authorize::{Attributes, Authorizer, Decision};
