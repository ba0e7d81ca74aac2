// What the application shell knows: the current screen, the connection and the session.

export const app = {
  current: { screen: null, name: "", path: [], params: {}, data: null, problem: null },
  live: false, // whether the event stream is connected
  namespaces: [],
  events: { end: () => {}, reconnect: () => {} },
  signedOut: false,
  painted: false, // whether the first screen was painted
};
