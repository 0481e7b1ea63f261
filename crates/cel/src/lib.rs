//! CEL, the expressions of Kubernetes: rules of custom resources, admission policies, conditions of webhooks, claims of tokens.
//!
//! Must not depend on an async runtime, on I/O or on any Ferry crate but `meta` and `semantics`.
//!
//! ```
//! use ferry_cel::{Budget, Environment, Type, Value};
//!
//! let environment = Environment::new().variable("object", Type::Dyn);
//! let program = environment.compile("object.spec.replicas <= 5").unwrap();
//! let object = serde_json::json!({"spec": {"replicas": 3}});
//! let result = program.evaluate(&[Value::json(&object)], &mut Budget::new(1_000_000)).unwrap();
//! assert_eq!(result.as_bool(), Some(true));
//! ```
//!
//! An expression is compiled once ([`Environment::compile`]) and evaluated often ([`Program::evaluate`]); JSON is read where it
//! lies. Every evaluation counts what it costs, as upstream does, and what it does beyond that (`work`), and ends when that is too
//! much, so that no expression can hold the server. Variables come from [`Bindings`], by the slot in which the environment declared them; those of [`Environment::lazy`]
//! are asked for when they are needed.
//!
//! | question | where |
//! |---|---|
//! | what can be written | `lexer`, `parser`, `macros` |
//! | which types it has, and what is refused | `checker`, `types`, `functions.tsv`, `validators` |
//! | what a schema means to it | [`Decl`] |
//! | what it can cost at most | `cost`, [`Environment::estimate`] |
//! | what selectors of devices see | [`device`] |
//! | how it is run | `plan`, `program`, `operators`, `library`, `charge` |

pub mod admission;
mod ast;
mod authorization;
mod charge;
mod checker;
mod cost;
pub mod device;
mod environment;
mod error;
mod functions;
mod lexer;
mod library;
mod macros;
mod operators;
mod parser;
mod plan;
mod program;
mod schema;
mod source;
mod stack;
mod types;
mod validators;
mod value;
mod work;

pub use authorization::{Authority, AuthorizerDecision, Check, Question, Resource};
pub use cost::Range;
pub use environment::Environment;
pub use error::{CompileError, Error, ExpressionError};
pub use program::{Bindings, Budget, CONDITIONS_BUDGET, PER_CALL_LIMIT, Program, REQUEST_BUDGET};
pub use schema::{Decl, Field, ListKind, MAX_REQUEST_BYTES, Object, RESERVED, Shape, escape};
pub use types::Type;
pub use value::{Key, List, Made, Map, Text, Value};
