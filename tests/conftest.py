"""What all tests share: how hypothesis runs here. Fixtures live beside the tests that use them."""

from hypothesis import settings

# The machines that run these tests are shared and small: a slow example says nothing about the code.
settings.register_profile("penstock", deadline=None, max_examples=100, print_blob=True)
settings.load_profile("penstock")
