//! What `--to` names: `service/web:80`, `pod/web-1:8080`, `service/dns:53/UDP`.

use crate::Error;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub is_service: bool,
    pub namespace: String,
    pub name: String,
    /// A number or a name; the only one of a Service where it is left out.
    pub port: Option<String>,
    pub protocol: Option<String>,
}

impl Target {
    pub fn parse(text: &str, namespace: &str) -> Result<Self, Error> {
        let wrong = || Error::Usage(format!("{text:?} is no target: it takes service/NAME:PORT or pod/NAME:PORT"));
        let (kind, rest) = text.split_once('/').ok_or_else(wrong)?;
        let is_service = match kind {
            "service" | "services" | "svc" => true,
            "pod" | "pods" | "po" => false,
            _ => return Err(wrong()),
        };
        let (rest, protocol) = match rest.split_once('/') {
            Some((rest, protocol)) => (rest, Some(protocol.to_ascii_uppercase())),
            None => (rest, None),
        };
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (rest, None),
        };
        let known = |protocol: &String| matches!(protocol.as_str(), "TCP" | "UDP" | "SCTP");
        let good_port = port.as_ref().is_none_or(|port| !port.is_empty() && port.parse::<u16>() != Ok(0));
        if name.is_empty() || !good_port || !protocol.as_ref().is_none_or(known) {
            return Err(wrong());
        }
        if !is_service && port.as_ref().is_none_or(|port| port.parse::<u16>().is_err()) {
            return Err(Error::Usage(format!("{text:?}: a pod is reached at the number of a port: pod/NAME:PORT")));
        }
        Ok(Self { is_service, namespace: namespace.to_owned(), name: name.to_owned(), port, protocol })
    }

    pub(crate) fn title(&self) -> String {
        let kind = if self.is_service { "service" } else { "pod" };
        let port = self.port.as_ref().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{kind}/{}{port}", self.name)
    }
}
