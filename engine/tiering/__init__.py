"""Ships sealed segments to an object store and reads them back. The engine core never imports this."""
