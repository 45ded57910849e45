"""The dialect of REST Proxy, v2 and v3, on a listener of its own: a translation onto the stages of HTTP."""
