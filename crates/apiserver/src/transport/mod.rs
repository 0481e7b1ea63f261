//! Connections in and out: the listener, the client without sockets, WebSockets, and how kubelets and pods are reached.

pub(crate) mod inprocess;
pub(crate) mod kubelet;
pub(crate) mod listen;
pub(crate) mod reach;
pub(crate) mod websocket;
